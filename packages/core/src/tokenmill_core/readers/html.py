"""Web pages as files: the main text of the page is the document.

Reasons: `invalid_encoding` (not UTF-8, nor what the page declares), `no_text_extracted`, `extraction_failed`,
`extraction_timed_out`.
"""

from collections.abc import Iterator

import pyarrow as pa

from tokenmill_core.documents import Account
from tokenmill_core.readers.batches import BatchBuilder
from tokenmill_core.readers.charset import decode_page
from tokenmill_core.readers.compression import read_whole
from tokenmill_core.readers.options import ReadOptions
from tokenmill_core.readers.page_text import PageError, main_text
from tokenmill_core.readers.piece import Piece
from tokenmill_core.readers.rejects import Rejecter
from tokenmill_core.readers.repair import repair


def read_html(piece: Piece, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """One batch with the main text of the page, row 1, no id; none if the file is empty or rejected.

    Raises:
        InputError: unreadable file, the extractor is not installed, or `strict`.
    """
    reject = Rejecter(piece, options, account)
    content = read_whole(piece.url, account)
    if not content:
        return
    try:
        text = page_document(content, None, options)
    except PageError as error:
        reject(1, error.reason, content)
        return
    builder = BatchBuilder(piece.name, options.carry)
    builder.add(id=None, text=repair(text, account), row=1, num_bytes=len(text))
    yield from builder.take()


def page_document(content: bytes, charset: str | None, options: ReadOptions) -> str:
    """The main text of a page; `charset` is what its server says it is in.

    Raises:
        PageError: there is none.
    """
    page = decode_page(content, charset)
    if page is None:
        raise PageError("invalid_encoding")
    return main_text(page, options.extraction_timeout)
