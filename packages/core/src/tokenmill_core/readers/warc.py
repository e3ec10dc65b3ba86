"""Web archives: the pages of WARC files, extracted, and the texts of WET files, as they are.

    records ─▶ pages ─▶ (id, text, carried) ─▶ batches
        └─ requests, images, failed responses: noted as `records_without_page`

Reasons: `invalid_utf8`, `empty_text`, `blank_text` (white space alone), and those of `html`.
"""

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers.batches import BatchBuilder
from tokenmill_core.readers.charset import charset_of
from tokenmill_core.readers.compression import read_chunks
from tokenmill_core.readers.html import page_document
from tokenmill_core.readers.options import ReadOptions
from tokenmill_core.readers.page_text import PageError, require_web_extra
from tokenmill_core.readers.piece import Piece
from tokenmill_core.readers.rejects import Rejecter
from tokenmill_core.readers.repair import repair

_HEADER_OF = {"url": "WARC-Target-URI", "date": "WARC-Date"}
"""Names that can be carried; any other is taken as that of a WARC header."""
_HTML_TYPES = ("text/html", "application/xhtml+xml")


def read_warc(piece: Piece, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """Batches of the documents of a WARC or WET file; rows are records, counted from 1, ids their WARC-Record-ID.

    Raises:
        InputError: unreadable file, records that do not hold together, something not installed, or `strict`.
    """
    require_web_extra("warcio")
    reject = Rejecter(piece, options, account)
    builder = BatchBuilder(piece.name, options.carry)
    for row, record in enumerate(_records(piece, account), 1):
        if not _is_page(record):
            account.note("records_without_page")
            continue
        content = record.content_stream().read()
        try:
            text = repair(_text(record, content, options), account)
        except PageError as error:
            reject(row, error.reason, content)
            continue
        size = len(text.encode())
        if not builder.has_room(size):
            yield from builder.take()
        id, *carried = (_header(record, name, account) for name in ("WARC-Record-ID", *options.carry))
        builder.add(id=id, text=text, row=row, num_bytes=size, carried=carried)
    yield from builder.take()


def _records(piece: Piece, account: Account) -> Iterator[Any]:
    """The records of a file. Each is read to its end before the next, so that one cut short does not pass as whole."""
    from warcio.archiveiterator import WARCIterator
    from warcio.exceptions import ArchiveLoadFailed

    # Told to parse HTTP headers itself, warcio takes a record that ends within them for the end of the file.
    stream = io.BufferedReader(_Stream(read_chunks(piece.url, account)))
    iterator = WARCIterator(stream, no_record_parse=True)
    try:
        for record in iterator:
            if not (record.rec_headers.get_header("Content-Length") or "").isdigit():
                raise ArchiveLoadFailed("a record does not say how long it is")
            yield record
            iterator.read_to_end()
            if iterator.err_count or record.raw_stream.limit > 0:
                raise ArchiveLoadFailed("a record is cut short, or longer than it says")
    except ArchiveLoadFailed as error:
        raise InputError(f"cannot read {piece.url} as WARC: {error}; fetch the file again or leave it out") from error


class _Stream(io.RawIOBase):
    """Chunks as a file to read from."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._chunks, b""))
        length = min(len(target), len(self._rest))
        target[:length] = self._rest[:length]
        self._rest = self._rest[length:]
        return length


def _is_page(record: Any) -> bool:
    """Whether a record is a text of a WET file, or a page that a server sent without an error."""
    if record.rec_type == "conversion":
        return True
    if record.rec_type != "response" or not _take_http_headers(record) or record.http_headers.get_statuscode() != "200":
        return False
    kind = record.rec_headers.get_header("WARC-Identified-Payload-Type") or _content_type(record) or ""
    return kind.partition(";")[0].strip().lower() in _HTML_TYPES


def _take_http_headers(record: Any) -> bool:
    """Read the HTTP headers that a response begins with, if it has any."""
    from warcio.statusandheaders import StatusAndHeadersParser

    try:
        record.http_headers = StatusAndHeadersParser([], verify=False).parse(record.raw_stream)
    except EOFError:
        return False
    return True


def _content_type(record: Any) -> str | None:
    value = record.http_headers.get_header("Content-Type")
    return None if value is None else str(value)


def _text(record: Any, content: bytes, options: ReadOptions) -> str:
    """The text of a record; a `PageError` says why there is none."""
    if record.rec_type == "response":
        return page_document(content, charset_of(_content_type(record)), options)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise PageError("invalid_utf8") from None
    if not text or text.isspace():
        raise PageError("blank_text" if text else "empty_text")
    return text


def _header(record: Any, name: str, account: Account) -> str | None:
    value = record.rec_headers.get_header(_HEADER_OF.get(name, name))
    return None if value is None else repair(str(value), account, surrogates=True)
