"""CSV and TSV: a row of column names, then one document a record; quoted values may span lines.

    lines ─▶ records ─▶ (id, text, carried) ─▶ batches
                └─ a record that gives no document costs itself, never the file

Reasons: `invalid_csv` (quotes that do not pair up, a carriage return within a line), `wrong_field_count`,
`invalid_utf8`, `empty_text`, `blank_text` (white space alone).
"""

from collections.abc import Iterator

import pyarrow as pa

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers.batches import BatchBuilder
from tokenmill_core.readers.compression import read_chunks
from tokenmill_core.readers.csv_records import Record, csv_records
from tokenmill_core.readers.formats import Format
from tokenmill_core.readers.lines import refuse_other_encodings, split
from tokenmill_core.readers.options import ReadOptions
from tokenmill_core.readers.piece import Piece
from tokenmill_core.readers.rejects import Rejecter
from tokenmill_core.readers.repair import repair


def read_delimited(piece: Piece, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    """Batches of the documents of a CSV or TSV file; the row is the line that a record begins in, counted from 1.

    Raises:
        InputError: unreadable file, one that is UTF-16 or UTF-32, no such text column, or `strict`.
    """
    lines = split(read_chunks(piece.url, account), b"\n")
    records = csv_records(lines, "\t" if piece.format is Format.TSV else ",", account)
    header = next(records, None)
    if header is None:
        return
    columns = _Columns(header, piece, options)
    reject = Rejecter(piece, options, account)
    builder = BatchBuilder(piece.name, options.carry)
    for record in records:
        if record.values == header.values:
            account.note("repeated_headers")  # files were joined
            continue
        if problem := record.problem or columns.problem(record.values):
            reject(record.row, problem, record.raw)
            continue
        size = sum(map(len, record.lines))
        if not builder.has_room(size):
            yield from builder.take()
        id, text, carried = columns.of(record.values, account)
        builder.add(id=id, text=text, row=record.row, num_bytes=size, carried=carried)
    yield from builder.take()


class _Columns:
    """Where a document's fields stand in a record. Of columns with the same name the first counts."""

    def __init__(self, header: Record, piece: Piece, options: ReadOptions) -> None:
        refuse_other_encodings(header.raw, piece.url)
        names = header.values
        if header.problem or options.text_field not in names:
            raise InputError(
                f"{piece.url} has no column {options.text_field!r}; the first line names "
                f"{', '.join(map(repr, names)) or repr(header.raw[:80])}: name the one to read with --text-field"
            )
        self._num_columns = len(names)
        self._text, self._id, *self._carried = (
            names.index(name) if name in names else None
            for name in (options.text_field, options.id_field, *options.carry)
        )

    def problem(self, values: list[str]) -> str | None:
        """Why a record gives no document, or none."""
        if len(values) != self._num_columns:
            return "wrong_field_count"
        text = _at(values, self._text)
        return None if text and not text.isspace() else "blank_text" if text else "empty_text"

    def of(self, values: list[str], account: Account) -> tuple[str | None, str, list[str | None]]:
        """(id, text, carried) of a record."""
        id, text, *carried = (
            None if value is None else repair(value, account)
            for value in (_at(values, column) for column in (self._id, self._text, *self._carried))
        )
        return id or None, text or "", carried


def _at(values: list[str], column: int | None) -> str | None:
    return None if column is None else values[column]
