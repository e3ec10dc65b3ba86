"""A sample of bounded size in one pass: the documents with the lowest hashes of their text.

What is chosen depends on the texts alone, neither on where they stand nor on the order of files. Documents come out by
hash, so that what follows does not depend on it either.
"""

from collections.abc import Iterable, Iterator

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokenmill_core.compiled.hashing import hash_bytes
from tokenmill_core.compiled.text_buffers import text_buffers
from tokenmill_core.readers.batches import cut_batch, text_bytes

_HASH = "\0hash"
"""A name that no carried field has."""
_ORDER = [(_HASH, "ascending"), ("file", "ascending"), ("row", "ascending")]


def sample_documents(batches: Iterable[pa.RecordBatch], max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The documents of `batches` in the order of their hashes as long as their text stays within `max_bytes`.

    At least one document is given if there is one. In memory are at most about twice `max_bytes` and a batch.
    """
    kept: list[pa.RecordBatch] = []
    held, highest = 0, np.uint64(np.iinfo(np.uint64).max)
    for batch in batches:
        hashes = _hashes(*_buffers(batch))
        batch = batch.append_column(_HASH, pa.array(hashes)).filter(pa.array(hashes <= highest))
        kept.append(batch)
        held += text_bytes(batch)
        if held > 2 * max_bytes:
            kept = _lowest(kept, max_bytes)
            held = sum(map(text_bytes, kept))
            highest = np.uint64(pc.max(kept[-1].column(_HASH)).as_py())
    for batch in _lowest(kept, max_bytes):
        yield from cut_batch(batch.drop_columns([_HASH]))


def _buffers(batch: pa.RecordBatch) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    text = text_buffers(batch)
    return text.data, np.ascontiguousarray(text.offsets)


def _lowest(batches: list[pa.RecordBatch], max_bytes: int) -> list[pa.RecordBatch]:
    """One batch of the documents with the lowest hashes, in their order; none if there are no documents."""
    if not any(batch.num_rows for batch in batches):
        return []
    table = pa.Table.from_batches(batches).sort_by(_ORDER)
    ends = np.cumsum(pc.binary_length(table.column("text")).to_numpy(), dtype=np.int64)
    fits = max(1, int(np.searchsorted(ends, max_bytes, side="right")))
    return list(table.slice(0, fits).combine_chunks().to_batches())


@numba.njit(cache=True)
def _hashes(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    hashes = np.empty(len(offsets) - 1, np.uint64)
    for d in range(len(hashes)):
        hashes[d] = hash_bytes(data, offsets[d], offsets[d + 1])
    return hashes
