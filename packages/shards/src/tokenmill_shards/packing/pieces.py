"""Pieces of documents, the table that says what packed sequences are made of: `<shard>.pieces.parquet`, a row a piece.

Rows stand in the order of the tokens. A sequence that is not full ends with a row of padding, whose source is null.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokenmill_core.errors import VerificationError
from tokenmill_core.manifest import FileEntry
from tokenmill_core.storage import HashingWriter

PIECES_SUFFIX = ".pieces.parquet"
PADDING = -1
"""What stands for the source of padding in memory."""


class Pieces(NamedTuple):
    """P pieces, an array of shape (P,) for each thing there is to know of them."""

    sequence: NDArray[np.int64]
    """Number of the sequence that the piece is in."""
    source: NDArray[np.int64]
    """Number of the source among those of the mixture, or `PADDING`."""
    epoch: NDArray[np.int64]
    shard: NDArray[np.int64]
    """Number of the shard among those of the source."""
    document: NDArray[np.int64]
    """Number of the document in its shard."""
    first_token: NDArray[np.int64]
    """The piece's first token, counted in the document."""
    num_tokens: NDArray[np.int64]
    document_tokens: NDArray[np.int64]
    """Tokens of the whole document; not stored, so 0 where the table is read."""
    physical: NDArray[np.int64]
    """The piece's first token, counted in the shard; not stored either."""

    @property
    def first_is_label(self) -> NDArray[np.bool_]:
        """(P,) Whether a piece's first token is a label.

        It is none where a sequence begins, nor where a cut document goes on: the piece before has it as a label.
        """
        inside = np.diff(self.sequence, prepend=-1) == 0
        is_label: NDArray[np.bool_] = inside & (self.first_token == 0) & (self.source != PADDING)
        return is_label

    def take(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> "Pieces":
        """The pieces that `chosen`, indices or a mask, names."""
        return Pieces(*(column[chosen] for column in self))


SCHEMA = pa.schema(
    [
        pa.field(name, pa.int32(), nullable=name == "source")
        for name in ("source", "epoch", "shard", "document", "first_token", "num_tokens")
    ]
)
"""`source` counts the manifest's `sources`, `shard` those of its dataset; all count from 0."""


def join(parts: Sequence[Pieces]) -> Pieces:
    """All pieces of `parts`, one part after another."""
    nothing = np.zeros(0, np.int64)
    columns = zip(*parts, strict=True) if parts else [()] * len(Pieces._fields)
    return Pieces(*(np.concatenate([nothing, *column]) for column in columns))


def ramps(sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each of sum(sizes) items, in groups of `sizes`: (number of its group, its number in the group)."""
    groups = np.repeat(np.arange(sizes.size), sizes)
    return groups, np.arange(groups.size) - (np.cumsum(sizes) - sizes)[groups]


def padding_after(sequence: NDArray[np.int64], num_tokens: NDArray[np.int64], capacity: int) -> Pieces:
    """What sequences still need that hold pieces of `num_tokens` (P,); `sequence` (P,) says which holds which."""
    filled = np.bincount(sequence, num_tokens).astype(np.int64)
    short = np.flatnonzero(filled < capacity)
    columns = {name: np.zeros(short.size, np.int64) for name in Pieces._fields}
    return Pieces(
        **columns | {"sequence": short, "source": columns["source"] + PADDING, "num_tokens": capacity - filled[short]}
    )


def write_pieces(path: Path, pieces: Pieces) -> FileEntry:
    """Write the table of a shard."""
    columns = [getattr(pieces, name).astype(np.int32) for name in SCHEMA.names]
    arrays = [pa.array(columns[0], mask=pieces.source == PADDING), *map(pa.array, columns[1:])]
    with HashingWriter(path) as writer, pq.ParquetWriter(writer, SCHEMA, compression="zstd") as table:
        table.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA))
    return FileEntry(path=path.name, bytes=writer.bytes, sha256=writer.sha256)


def read_pieces(path: Path, width: int) -> Pieces:
    """The table of a shard whose sequences have `width` tokens."""
    table = pq.read_table(path, schema=SCHEMA)
    columns = [table.column(name).fill_null(PADDING).to_numpy().astype(np.int64) for name in SCHEMA.names]
    ends = np.cumsum(columns[-1])
    if (
        not ends.size
        or (ends - columns[-1] < 0).any()
        or not np.isin(np.arange(width, ends[-1] + 1, width), ends).all()
    ):
        raise VerificationError(f"{path}: its pieces do not make up sequences of {width} tokens; pack again")
    not_stored = np.zeros(ends.size, np.int64)
    stored = dict(zip(SCHEMA.names, columns, strict=True))
    return Pieces(sequence=(ends - 1) // width, **stored, document_tokens=not_stored, physical=not_stored)
