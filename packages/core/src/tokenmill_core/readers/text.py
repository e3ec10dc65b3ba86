"""Plain text and source code: the file is the document, its line ends and indentation untouched.

Plain text may also be cut into documents, a line or a part between separators each: see `options.TextUnit`.
"""

from collections.abc import Iterator

import pyarrow as pa

from tokenmill_core.documents import Account
from tokenmill_core.readers.batches import BatchBuilder
from tokenmill_core.readers.compression import read_whole
from tokenmill_core.readers.lines import numbered_lines, numbered_parts, without_marks
from tokenmill_core.readers.options import ReadOptions, TextUnit
from tokenmill_core.readers.piece import Piece
from tokenmill_core.readers.rejects import Rejecter
from tokenmill_core.readers.repair import repair


def read_text(piece: Piece, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """Batches of the documents of a plain text file, by `options.text_unit`; no ids.

    Rows are lines, blank ones included, or parts between separators, counted from 1; 1 where the file is the document.
    Reasons: `invalid_utf8`, `blank_text` (white space alone).

    Raises:
        InputError: unreadable file, one to be cut that is UTF-16 or UTF-32, or `strict`.
    """
    match options.text_unit:
        case TextUnit.DOCUMENT:
            parts = _whole(piece, account)
        case TextUnit.LINE:
            parts = numbered_lines(piece, account)
        case TextUnit.SEPARATOR:
            parts = numbered_parts(piece, account, (options.separator or "").encode())
    return _documents(parts, piece, options, account)


def read_source(piece: Piece, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """One batch with the file as its only document; none if it is empty or rejected. Otherwise as `read_text`."""
    return _documents(_whole(piece, account), piece, options, account)


def _whole(piece: Piece, account: Account) -> Iterator[tuple[int, bytes]]:
    if content := without_marks(read_whole(piece.url, account), account):
        yield 1, content


def _documents(
    parts: Iterator[tuple[int, bytes]], piece: Piece, options: ReadOptions, account: Account
) -> Iterator[pa.RecordBatch]:
    reject = Rejecter(piece, options, account)
    builder = BatchBuilder(piece.name, options.carry)
    for row, content in parts:
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            reject(row, "invalid_utf8", content)
            continue
        if text.isspace():
            reject(row, "blank_text", content)
            continue
        if not builder.has_room(len(content)):
            yield from builder.take()
        builder.add(id=None, text=repair(text, account), row=row, num_bytes=len(content))
    yield from builder.take()
