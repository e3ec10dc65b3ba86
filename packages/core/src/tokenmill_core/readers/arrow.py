"""Arrow IPC: files (Feather) and streams, as `datasets` saves them too; one document a row. Reasons: see `columns`."""

from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers.columns import batch_rows, columns_to_read, documents_of, is_string
from tokenmill_core.readers.options import ReadOptions
from tokenmill_core.readers.piece import Piece
from tokenmill_core.storage import open_read

_FILE_MAGIC = b"ARROW1"
_FEATHER_V1_MAGIC = b"FEA1"
_CONTINUATION = b"\xff\xff\xff\xff"
"""Begins every message of a stream, but for those that Arrow wrote before version 0.15."""
_END_OF_STREAM = _CONTINUATION + bytes(4)


def read_arrow(piece: Piece, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """Batches of the documents of an Arrow file or stream.

    Raises:
        InputError: unreadable file, no such text column, a column that is no text, or `strict`.
    """
    return documents_of(_raw_batches(piece, options, account), piece, options, account)


def _raw_batches(piece: Piece, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """Batches of the columns that there are, cut so that their text stays near the limit."""
    try:
        with open_read(piece.url) as source:
            if not source.read(1):
                account.note("empty_files")
                return
            rows = 0
            for batch in _record_batches(source, piece, options):
                _refuse_damaged(batch)
                rows += batch.num_rows
                size = batch_rows(batch.num_rows, batch.nbytes)
                yield from (batch.slice(start, size) for start in range(0, batch.num_rows, size))
            if not rows:
                account.note("empty_files")
    except (OSError, EOFError, UnicodeDecodeError, MemoryError, pa.ArrowException) as error:
        # A damaged size asks for more memory than there is, in an error that says nothing.
        problem = str(error) or "a part of it does not fit in memory"
        raise InputError(
            f"cannot read {piece.url} as Arrow: {problem}; fetch the file again or leave it out"
        ) from error


def _record_batches(source: IO[bytes], piece: Piece, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    source.seek(0)
    head = source.read(len(_FILE_MAGIC))
    if head.startswith(_FEATHER_V1_MAGIC):
        raise InputError(f"{piece.url} is Feather version 1, which few can read; write it again as Feather version 2")
    is_file = head == _FILE_MAGIC
    if not is_file:
        _refuse_cut_short(source)
    source.seek(0)
    schema = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source).schema
    wanted = columns_to_read(schema, piece, options)
    columns = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in wanted])
    source.seek(0)
    if is_file:
        reader = pa.ipc.open_file(source, options=columns)
        yield from (reader.get_batch(index) for index in range(reader.num_record_batches))
    else:
        yield from pa.ipc.open_stream(source, options=columns)


def _refuse_damaged(batch: pa.RecordBatch) -> None:
    """Raise where offsets or indices lead out of their buffers: Arrow trusts them, and would crash.

    Strings that are no UTF-8 are another matter: they cost their row, later.
    """
    for column in batch.columns:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            if not (is_string(column.type) and "UTF8" in str(error)):
                raise
            if pa.types.is_dictionary(column.type):
                # Only what it leads to was looked at so far.
                pa.DictionaryArray.from_arrays(column.indices, pa.nulls(len(column.dictionary)))


def _refuse_cut_short(source: IO[bytes]) -> None:
    """Arrow takes a stream that stops between two messages for a whole one; its writers mark the end."""
    source.seek(0)
    if source.read(len(_CONTINUATION)) != _CONTINUATION:
        return
    source.seek(-len(_END_OF_STREAM), 2)
    if source.read() != _END_OF_STREAM:
        raise EOFError("the stream is cut short: its end is not marked")
