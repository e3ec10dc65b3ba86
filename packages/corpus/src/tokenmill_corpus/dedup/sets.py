"""Sets of shingles of chosen documents, read from the survivors, and how similar two of them are."""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.hashing import add, empty_set
from tokenmill_core.compiled.text_buffers import TextBuffers, text_buffers
from tokenmill_core.stage import Work
from tokenmill_corpus.dedup.normal_form import normal_form_table
from tokenmill_corpus.dedup.order import Order
from tokenmill_corpus.dedup.scratch import ScratchWriter
from tokenmill_corpus.dedup.settings import MinHash
from tokenmill_corpus.dedup.shingles import Unit, hash_shingles
from tokenmill_corpus.survivors import read_survivors


class ShingleSets(NamedTuple):
    """The different shingles of document i are `hashes[first[i]:last[i]]`. Compiled code takes it as it is."""

    hashes: NDArray[np.uint64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]


def read_sets(work: Work, order: Order, settings: MinHash, numbers: NDArray[np.int64]) -> ShingleSets:
    """The sets of the documents of these numbers. Files are read from front to back, and texts only once."""
    writer = ScratchWriter(work.folder, np.uint64)
    sizes = np.zeros(len(numbers), np.int64)
    by_number = np.argsort(numbers)
    tasks, indices = order.locate(numbers[by_number])
    for task in np.unique(tasks):
        start, wanted, targets = 0, indices[tasks == task], by_number[tasks == task]
        for batch in read_survivors(work, int(task)):
            low, high = np.searchsorted(wanted, (start, start + len(batch)))
            if low < high:
                hashes, sizes[targets[low:high]] = _sets_of(settings, text_buffers(batch), wanted[low:high] - start)
                writer.append(hashes)
            start += len(batch)
    ends = np.empty(len(numbers), np.int64)
    ends[by_number] = np.cumsum(sizes[by_number])
    return ShingleSets(writer.close(), ends - sizes, ends)


def _sets_of(
    settings: MinHash, text: TextBuffers, rows: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The sets of the documents `rows`, one after the other, and the size of each."""
    num_bytes = text.num_bytes[rows]
    sizes = np.zeros(len(rows), np.int64)
    hashes = np.empty(num_bytes.sum(), np.uint64)
    shingles = np.empty(num_bytes.max(initial=0), np.uint64)
    how = (normal_form_table(), settings.unit is Unit.CHARACTER, settings.ngram)
    _find_sets(text.data, text.offsets, rows, *how, shingles, hashes, sizes)
    return hashes[: sizes.sum()], sizes


@numba.njit(cache=True)
def _find_sets(
    text: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    rows: NDArray[np.int64],
    table: NDArray[np.uint32],
    by_character: bool,
    ngram: int,
    shingles: NDArray[np.uint64],
    hashes: NDArray[np.uint64],
    sizes: NDArray[np.int64],
) -> None:
    total = 0
    for i in range(len(rows)):
        first, last = offsets[rows[i]], offsets[rows[i] + 1]
        count = hash_shingles(text, first, last, table, by_character, ngram, shingles)
        seen = empty_set(count)
        for shingle in shingles[:count]:
            hashed = max(shingle, np.uint64(1))  # 0 marks an empty place
            if not add(seen, hashed):
                hashes[total] = hashed
                total += 1
                sizes[i] += 1


@numba.njit(cache=True)
def as_table(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The set to look things up in."""
    table = empty_set(len(hashes))
    for hashed in hashes:
        add(table, hashed)
    return table


@numba.njit(cache=True)
def jaccard(table: NDArray[np.uint64], size: int, others: NDArray[np.uint64], least: float) -> float:
    """Jaccard similarity of the `size` hashes in `table` and the set `others`; 0 where it is less than `least`."""
    few, many = min(size, len(others)), max(size, len(others))
    if few < least * many * (1 - 1e-9):
        return 0.0
    needed = least / (1 + least) * (size + len(others)) - 1
    mask = np.uint64(len(table) - 1)
    shared, left = 0, len(others)
    for hashed in others:
        left -= 1
        slot = (hashed >> np.uint64(1)) & mask
        while table[slot] != 0 and table[slot] != hashed:
            slot = (slot + np.uint64(1)) & mask
        if table[slot] == hashed:
            shared += 1
        elif shared + left < needed:
            return 0.0
    similarity = shared / (size + len(others) - shared)
    return similarity if similarity >= least else 0.0
