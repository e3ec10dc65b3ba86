"""Documents out of columnar batches, as Parquet and Arrow files hold them.

    raw batch ─▶ id, text and carried columns ─▶ reasons (vectorised) ─▶ kept rows ─▶ batch of documents

Reasons: `null_text`, `invalid_utf8`, `empty_text`, `blank_text` (white space alone).
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill_core.documents import DOCUMENT_SCHEMA, MAX_BATCH_BYTES, Account, document_schema
from tokenmill_core.errors import InputError
from tokenmill_core.readers.batches import MAX_BATCH_ROWS, cut_batch, make_batch
from tokenmill_core.readers.carried import carried_text
from tokenmill_core.readers.microseconds import in_microseconds
from tokenmill_core.readers.options import ReadOptions
from tokenmill_core.readers.piece import Piece
from tokenmill_core.readers.rejects import Rejecter
from tokenmill_core.readers.repair import repair_array

_UNREADABLE = (ValueError, OverflowError, LookupError, NotImplementedError)
"""What Arrow raises for what Python cannot hold: text that is no UTF-8, times out of range or of unknown zone."""


def columns_to_read(schema: pa.Schema, piece: Piece, options: ReadOptions) -> list[str]:
    """The columns of a file that are wanted and present.

    Raises:
        InputError: no text column, one that holds no text, or of a documents manifest a column missing.
    """
    text_field = "text" if piece.documents else options.text_field
    needed = DOCUMENT_SCHEMA.names if piece.documents else [text_field]
    for name in needed:
        if schema.get_field_index(name) < 0:
            raise InputError(
                f"{piece.url} has no column {name!r}; its columns are {', '.join(map(repr, schema.names))}: "
                "name the one to read with --text-field"
            )
    kind = schema.field(text_field).type
    if not (is_string(kind) or pa.types.is_null(kind)):
        raise InputError(
            f"{piece.url}: column {text_field!r} holds {kind}, not strings: "
            "name another with --text-field, or convert it"
        )
    wanted = [*needed, *([] if piece.documents else [options.id_field]), *options.carry]
    return [name for name in dict.fromkeys(wanted) if schema.get_field_index(name) >= 0]


def batch_rows(num_rows: int, num_bytes: int) -> int:
    """How many rows to take at a time: about `MAX_BATCH_BYTES` of them, going by the average of `num_rows`."""
    average = max(1, num_bytes // max(1, num_rows))
    return int(max(1, min(MAX_BATCH_ROWS, MAX_BATCH_BYTES // average)))


def documents_of(
    batches: Iterable[pa.RecordBatch], piece: Piece, options: ReadOptions, account: Account
) -> Iterator[pa.RecordBatch]:
    """Batches within the limits, of the documents that raw ones hold; rows count on from the piece's first."""
    reject = Rejecter(piece, options, account)
    row = piece.first_row
    for batch in batches:
        if piece.documents:
            documents = _as_they_are(batch, options, account)
        else:
            documents = _documents(batch, row, options, account, reject)
        row += batch.num_rows
        yield from cut_batch(documents)


def _as_they_are(batch: pa.RecordBatch, options: ReadOptions, account: Account) -> pa.RecordBatch:
    own = batch.select(DOCUMENT_SCHEMA.names).cast(DOCUMENT_SCHEMA)
    carried = [_carried(batch, name, account) for name in options.carry]
    return pa.RecordBatch.from_arrays([*own.columns, *carried], schema=document_schema(options.carry))


def _documents(
    batch: pa.RecordBatch, first_row: int, options: ReadOptions, account: Account, reject: Rejecter
) -> pa.RecordBatch:
    """The rows of a raw batch that hold a document; the others go to `reject`."""
    texts = batch.column(options.text_field).cast(pa.large_string())
    reasons = _reasons(texts)
    bad = pc.is_valid(reasons)
    any_bad = pc.any(bad).as_py()
    for index in pc.indices_nonzero(bad).to_pylist():
        # Through bytes: the text may be no valid UTF-8.
        raw = texts[index].cast(pa.large_binary()).as_py() or b""
        reject(first_row + index, reasons[index].as_py(), raw)
    rows = pa.array(np.arange(first_row, first_row + batch.num_rows, dtype=np.int64))

    def good(column: pa.Array) -> pa.Array:
        return column.filter(pc.invert(bad)) if any_bad else column  # filtering copies, even where nothing goes

    return make_batch(
        ids=good(_ids(batch, options.id_field, account)),
        texts=repair_array(good(texts), account),
        file=reject.piece.name,
        rows=good(rows),
        carried={name: good(_carried(batch, name, account)) for name in options.carry},
    )


def is_string(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text, in any of the ways that Arrow has for it."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _reasons(texts: pa.Array) -> pa.Array:
    """For each text why it is no document, or null where it is one."""
    invalid = _invalid_utf8(texts)
    # Only where it must be: the choice copies every text.
    readable = pc.if_else(invalid, pa.scalar("-", pa.large_string()), texts) if pc.any(invalid).as_py() else texts
    empty = pc.equal(pc.binary_length(readable), 0)
    blank = pc.utf8_is_space(readable)
    cases = {"null_text": pc.is_null(texts), "invalid_utf8": invalid, "empty_text": empty, "blank_text": blank}
    conditions = pa.StructArray.from_arrays([pc.fill_null(case, False) for case in cases.values()], list(cases))
    return pc.case_when(conditions, *cases)


def _invalid_utf8(texts: pa.Array) -> pa.Array:
    """Which texts are no valid UTF-8: neither Parquet nor Arrow checks.

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
    column = _plain_column(batch, name)
    if column is not None and pa.types.is_integer(column.type):
        return column.cast(pa.string())
    if column is not None and is_string(column.type):
        return _readable(column, account)
    return pa.nulls(batch.num_rows, pa.string())


def _carried(batch: pa.RecordBatch, name: str, account: Account) -> pa.Array:
    """A column as text, as `carried_text` writes its values; null where there is none."""
    column = _plain_column(batch, name)
    if column is None:
        return pa.nulls(batch.num_rows, pa.string())
    kind = column.type
    if is_string(kind):
        return _readable(column, account)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or _is_moment(kind):
        return column.cast(pa.string())
    return pa.array([carried_text(value, account) for value in _values(column, account)], pa.string())


def _values(column: pa.Array, account: Account) -> list[Any]:
    """The values of a column as Python has them; those that it cannot hold are none, and noted."""
    try:
        return _python_values(column)
    except _UNREADABLE:
        return [_value(column.slice(index, 1), account) for index in range(len(column))]


def _value(one: pa.Array, account: Account) -> Any:
    try:
        return _python_values(one)[0]
    except _UNREADABLE:
        account.note("unreadable_carried_values")
        return None


def _python_values(column: pa.Array) -> list[Any]:
    kind = in_microseconds(column.type)
    return list((column if kind == column.type else column.cast(kind)).to_pylist())


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind))


def _plain_column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column without its dictionary, or none if there is no such column."""
    if batch.schema.get_field_index(name) < 0:
        return None
    column = batch.column(name)
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _readable(column: pa.Array, account: Account) -> pa.Array:
    """Text in which what no later stage should meet is replaced, bytes that are no UTF-8 too."""
    texts = column.cast(pa.string())
    if pc.any(_invalid_utf8(texts)).as_py():
        raw = texts.cast(pa.binary()).to_pylist()
        texts = pa.array([None if value is None else value.decode("utf-8", "replace") for value in raw], pa.string())
    return repair_array(texts, account)
