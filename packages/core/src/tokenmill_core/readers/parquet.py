"""Parquet: one document a row, read column by column and row group by row group. Reasons: see `columns`."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers.columns import batch_rows, columns_to_read, documents_of
from tokenmill_core.readers.options import ReadOptions
from tokenmill_core.readers.piece import Piece
from tokenmill_core.storage import filesystem, open_read

_BUFFER_BYTES = 4 << 20


def read_parquet(piece: Piece, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """Batches of the documents of a Parquet file, or of its row groups that `piece` names.

    Raises:
        InputError: unreadable file, no such text column, a column that is no text, or `strict`.
    """
    return documents_of(_raw_batches(piece, options, account), piece, options, account)


def row_group_bytes(url: str) -> list[tuple[int, int]]:
    """(compressed bytes, rows) of every row group of the Parquet file at `url`, read from its footer alone.

    Raises:
        InputError: the file is unreadable.
    """
    try:
        with open_read(url) as source:
            metadata = pq.ParquetFile(source).metadata
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(url, error) from error
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    sizes = [sum(group.column(c).total_compressed_size for c in range(group.num_columns)) for group in groups]
    return [(size, group.num_rows) for size, group in zip(sizes, groups, strict=True)]


def _unreadable(url: str, error: Exception) -> InputError:
    return InputError(f"cannot read {url} as Parquet: {error}; fetch the file again or leave it out")


def _raw_batches(piece: Piece, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """Batches of the columns that there are, small enough that their text stays near the limit."""
    fs, path = filesystem(piece.url)
    try:
        if fs.size(path) == 0:
            account.note("empty_files")
            return
        with open_read(piece.url) as source:
            file = pq.ParquetFile(source, buffer_size=_BUFFER_BYTES)
            present = columns_to_read(file.schema_arrow, piece, options)
            if not file.metadata.num_rows:
                account.note("empty_files")
            for index in range(file.num_row_groups) if piece.row_groups is None else piece.row_groups:
                group = file.metadata.row_group(index)
                size = batch_rows(group.num_rows, group.total_byte_size)
                yield from file.iter_batches(size, row_groups=[index], columns=present, use_threads=False)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise _unreadable(piece.url, error) from error
