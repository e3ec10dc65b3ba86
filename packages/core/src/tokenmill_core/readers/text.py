"""Plain text and source code: the file is the document, its line ends and indentation untouched."""

from collections.abc import Iterator

import pyarrow as pa

from tokenmill_core.documents import Account
from tokenmill_core.readers.batches import BatchBuilder
from tokenmill_core.readers.compression import BOM, read_whole
from tokenmill_core.readers.options import ReadOptions
from tokenmill_core.readers.piece import Piece
from tokenmill_core.readers.rejects import Rejecter
from tokenmill_core.readers.repair import repair


def read_text(piece: Piece, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """One batch with the file as its only document, row 1, no id; none if the file is empty or rejected.

    Reasons: `invalid_utf8`, `blank_text` (white space alone).

    Raises:
        InputError: unreadable file, or `strict`.
    """
    reject = Rejecter(piece, options, account)
    content = read_whole(piece.url, account)
    if content.startswith(BOM):
        account.note("byte_order_marks")
        content = content.removeprefix(BOM)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        reject(1, "invalid_utf8", content)
        return
    if text.isspace():
        reject(1, "blank_text", content)
    elif text:
        builder = BatchBuilder(piece.name)
        builder.add(id=None, text=repair(text, account), row=1, num_bytes=len(content))
        yield from builder.take()
