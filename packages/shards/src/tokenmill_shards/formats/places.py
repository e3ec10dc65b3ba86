"""Where each document of a shard came from, and which it is: `<shard>.documents.parquet`, a row a document."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokenmill_core.errors import VerificationError

PLACES_SUFFIX = ".documents.parquet"
MASK_SUFFIX = ".loss_mask.bin"
"""`<shard>.loss_mask.bin`: a byte a token, in the order of the shard's tokens; 1 where it counts, else 0."""
HASH = "hash"
NUM_HASHES = 1 << 64
PLACES_SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("id", pa.string()),
        pa.field(HASH, pa.uint64(), nullable=False),
    ]
)
"""`file`: name of the raw file; `row`: 1-based row or line in it; `id`: the user's own id, or null; `hash`: of the
document's text, the same wherever it stands (see `writing.document_hashes`)."""


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
                row = table.read_row_group(group, columns=list(Place._fields)).slice(document - first, 1).to_pylist()[0]
                return Place(**row)
            first += num_rows
    raise VerificationError(f"{path} has {first:,} rows, needs one for document {document}; tokenize again")


def read_hashes(path: Path) -> NDArray[np.uint64]:
    """The hash of each document of a shard, (documents,).

    Errors: `VerificationError` where the file holds none.
    """
    with pq.ParquetFile(path) as table:
        if HASH not in table.schema_arrow.names:
            raise VerificationError(
                f"{path} has no column {HASH!r}: it was written by an older version; tokenize again"
            )
        hashes: NDArray[np.uint64] = table.read(columns=[HASH]).column(0).to_numpy()
    return hashes


def is_held_out(hashes: NDArray[np.uint64], share: float) -> NDArray[np.bool_]:
    """Which documents `share` (0 to 1, exclusive) holds out, by the `hashes` (documents,) of their texts."""
    assert 0 <= share < 1, share
    held_out: NDArray[np.bool_] = hashes < np.uint64(int(share * NUM_HASHES))  # exact: the share times a power of two
    return held_out
