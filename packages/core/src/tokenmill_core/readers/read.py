"""The one way from a piece of a raw file to batches of documents."""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from tokenmill_core.documents import Account
from tokenmill_core.readers.arrow import read_arrow
from tokenmill_core.readers.batches import join_batches, text_bytes
from tokenmill_core.readers.delimited import read_delimited
from tokenmill_core.readers.formats import Format
from tokenmill_core.readers.html import read_html
from tokenmill_core.readers.jsonl import read_jsonl
from tokenmill_core.readers.options import ReadOptions
from tokenmill_core.readers.parquet import read_parquet
from tokenmill_core.readers.piece import Piece
from tokenmill_core.readers.text import read_source, read_text
from tokenmill_core.readers.warc import read_warc

Reader = Callable[[Piece, ReadOptions, Account], Iterator[pa.RecordBatch]]
_READERS: dict[Format, Reader] = {
    Format.JSONL: read_jsonl,
    Format.PARQUET: read_parquet,
    Format.ARROW: read_arrow,
    Format.CSV: read_delimited,
    Format.TSV: read_delimited,
    Format.TEXT: read_text,
    Format.SOURCE: read_source,
    Format.HTML: read_html,
    Format.WARC: read_warc,
}


def read_piece(piece: Piece, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """The documents of `piece` in the order of the file, streaming in bounded memory.

    Batches have the schema `document_schema(options.carry)` and hold at most `MAX_BATCH_BYTES` of text, or one larger
    document. What is yielded is taken in by `account`, and rows that give no document are rejected there, so it
    balances once the kept documents are added.

    Raises:
        InputError: the file cannot be read or does not hold what `options` say; with `strict`, the first rejected row.
    """
    for batch in _READERS[piece.format](piece, options, account):
        if batch.num_rows:
            account.take_in(batch.num_rows, text_bytes(batch))
            yield batch


def read_pieces(pieces: Iterable[Piece], options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """The documents of several pieces as `read_piece` gives them, small batches joined: a batch may span files."""
    yield from join_batches(batch for piece in pieces for batch in read_piece(piece, options, account))
