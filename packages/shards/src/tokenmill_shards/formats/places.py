"""Where each document of a shard came from: `<shard>.documents.parquet`, a row a document, in the shard's order."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill_core.errors import VerificationError

PLACES_SUFFIX = ".documents.parquet"
PLACES_SCHEMA = pa.schema(
    [pa.field("file", pa.string(), nullable=False), pa.field("row", pa.int64(), nullable=False), ("id", pa.string())]
)
"""`file`: name of the raw file; `row`: 1-based row or line in it; `id`: the user's own id, or null."""


def places_schema(carry: Sequence[str] = ()) -> pa.Schema:
    """`PLACES_SCHEMA` followed by a nullable string column for each name of `carry`."""
    return pa.schema([*PLACES_SCHEMA, *(pa.field(name, pa.string()) for name in carry)])


class Place(NamedTuple):
    """A row of the raw data."""

    file: str
    row: int
    id: str | None


def read_place(path: Path, document: int) -> Place:
    """The place of a shard's document number `document`; reads the one row group that holds it."""
    with pq.ParquetFile(path) as table:
        first = 0
        for group in range(table.num_row_groups):
            num_rows = table.metadata.row_group(group).num_rows
            if document < first + num_rows:
                row = table.read_row_group(group, columns=PLACES_SCHEMA.names).slice(document - first, 1).to_pylist()[0]
                return Place(**row)
            first += num_rows
    raise VerificationError(f"{path} has {first:,} rows, needs one for document {document}; tokenize again")
