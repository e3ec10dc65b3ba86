"""Parquet: one document a row, read column by column and row group by row group.

    row groups ─▶ id and text columns ─▶ reasons (vectorised) ─▶ kept rows ─▶ batches

Reasons: `null_text`, `invalid_utf8`, `empty_text`, `blank_text` (white space alone).
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill_core.documents import DOCUMENT_SCHEMA, MAX_BATCH_BYTES, Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers.batches import MAX_BATCH_ROWS, cut_batch, make_batch
from tokenmill_core.readers.options import ReadOptions
from tokenmill_core.readers.piece import Piece
from tokenmill_core.readers.rejects import Rejecter
from tokenmill_core.readers.repair import repair_array
from tokenmill_core.storage import filesystem, open_read

_BUFFER_BYTES = 4 << 20


def read_parquet(piece: Piece, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """Batches of the documents of a Parquet file, or of its row groups that `piece` names.

    Raises:
        InputError: unreadable file, no such text column, a column that is no text, or `strict`.
    """
    reject = Rejecter(piece, options, account)
    columns = list(DOCUMENT_SCHEMA.names) if piece.documents else [options.text_field, options.id_field]
    row = piece.first_row
    for batch in _raw_batches(piece, columns, account):
        if piece.documents:
            documents = batch.select(DOCUMENT_SCHEMA.names).cast(DOCUMENT_SCHEMA)
        else:
            documents = _documents(batch, row, options, account, reject)
        row += batch.num_rows
        yield from cut_batch(documents)


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


def _raw_batches(piece: Piece, columns: list[str], account: Account) -> Iterator[pa.RecordBatch]:
    """Batches of the columns that there are, small enough that their text stays near the limit."""
    fs, path = filesystem(piece.url)
    try:
        if fs.size(path) == 0:
            account.note("empty_files")
            return
        with open_read(piece.url) as source:
            file = pq.ParquetFile(source, buffer_size=_BUFFER_BYTES)
            present = _check_columns(file.schema_arrow, columns, piece)
            if not file.metadata.num_rows:
                account.note("empty_files")
            for group in range(file.num_row_groups) if piece.row_groups is None else piece.row_groups:
                size = _batch_rows(file.metadata.row_group(group))
                yield from file.iter_batches(size, row_groups=[group], columns=present, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(piece.url, error) from error


def _check_columns(schema: pa.Schema, columns: list[str], piece: Piece) -> list[str]:
    """Those of `columns` that the file has; the first, and all four of a documents manifest, it must have."""
    text_field = "text" if piece.documents else columns[0]
    needed = columns if piece.documents else [text_field]
    for name in needed:
        if schema.get_field_index(name) < 0:
            raise InputError(
                f"{piece.url} has no column {name!r}; its columns are {', '.join(map(repr, schema.names))}: "
                "name the one to read with --text-field"
            )
    kind = schema.field(text_field).type
    if not (_is_string(kind) or pa.types.is_null(kind)):
        raise InputError(
            f"{piece.url}: column {text_field!r} holds {kind}, not strings: "
            "name another with --text-field, or convert it"
        )
    return [name for name in dict.fromkeys(columns) if schema.get_field_index(name) >= 0]


def _is_string(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _batch_rows(group: pq.RowGroupMetaData) -> int:
    """How many rows to read at a time: about `MAX_BATCH_BYTES` of them, going by the row group's average."""
    average = max(1, group.total_byte_size // max(1, group.num_rows))
    return int(max(1, min(MAX_BATCH_ROWS, MAX_BATCH_BYTES // average)))


def _documents(
    batch: pa.RecordBatch, first_row: int, options: ReadOptions, account: Account, reject: Rejecter
) -> pa.RecordBatch:
    """The rows of a raw batch that hold a document; the others go to `reject`."""
    texts = batch.column(options.text_field).cast(pa.large_string())
    reasons = _reasons(texts)
    bad = pc.is_valid(reasons)
    for index in pc.indices_nonzero(bad).to_pylist():
        # Through bytes: the text may be no valid UTF-8.
        raw = texts[index].cast(pa.large_binary()).as_py() or b""
        reject(first_row + index, reasons[index].as_py(), raw)
    keep = pc.invert(bad)
    rows = pa.array(np.arange(first_row, first_row + batch.num_rows, dtype=np.int64))
    ids = _ids(batch, options.id_field, account)
    return make_batch(
        ids=ids.filter(keep),
        texts=repair_array(texts.filter(keep), account),
        file=reject.piece.name,
        rows=rows.filter(keep),
    )


def _reasons(texts: pa.Array) -> pa.Array:
    """For each text why it is no document, or null where it is one."""
    invalid = _invalid_utf8(texts)
    readable = pc.if_else(invalid, pa.scalar("-", pa.large_string()), texts)
    empty = pc.equal(pc.binary_length(readable), 0)
    blank = pc.utf8_is_space(readable)
    cases = {"null_text": pc.is_null(texts), "invalid_utf8": invalid, "empty_text": empty, "blank_text": blank}
    conditions = pa.StructArray.from_arrays([pc.fill_null(case, False) for case in cases.values()], list(cases))
    return pc.case_when(conditions, *cases)


def _invalid_utf8(texts: pa.Array) -> pa.Array:
    """Which texts are no valid UTF-8: Parquet does not check.

    Arrow's own check of the whole is fast, so rows are gone through one by one only where it fails.
    """
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([not _decodes(value) for value in texts.cast(pa.large_binary()).to_pylist()])
    return pa.repeat(pa.scalar(False), len(texts))


def _decodes(value: bytes | None) -> bool:
    try:
        (value or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _ids(batch: pa.RecordBatch, name: str, account: Account) -> pa.Array:
    """The id column as text; null where there is none or it is neither text nor integers."""
    nothing = pa.nulls(batch.num_rows, pa.string())
    if name not in batch.schema.names:
        return nothing
    column = batch.column(name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_integer(kind):
        return column.cast(kind).cast(pa.string())
    if not _is_string(kind):
        return nothing
    ids = column.cast(pa.string())
    if pc.any(_invalid_utf8(ids)).as_py():
        raw = ids.cast(pa.binary()).to_pylist()
        ids = pa.array([None if value is None else value.decode("utf-8", "replace") for value in raw], pa.string())
    return repair_array(ids, account)
