"""How often each word occurs: an open-addressing table over one buffer that holds each different word once."""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.eight_bytes import copy, load, load_rest
from tokenmill_core.compiled.hashing import hash_bytes
from tokenmill_core.compiled.kernel import kernel
from tokenmill_tokenizer.training.symbols import Words

HASH, COUNT, START, LENGTH = range(4)
"""Columns of the table: hash of the word, 0 in an empty slot; its count; where it lies in the buffer."""
NOTHING = np.zeros(0, np.int64)


class WordTable:
    """Counts of words. What it holds depends on the words that were added, their order in it on the order of adding."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all words."""
        self._table = np.zeros((1 << 12, 4), np.int64)
        self._buffer = np.zeros(1 << 16, np.uint8)
        self._sizes = np.zeros(2, np.int64)
        """Words, and bytes of the buffer that they take."""

    @property
    def num_bytes(self) -> int:
        """Memory that the table takes."""
        return self._table.nbytes + self._buffer.nbytes

    def add(self, data: NDArray[np.uint8], start: int, ends: NDArray[np.int64]) -> None:
        """Count words that lie one behind the other: the first is `data[start:ends[0]]`."""
        self._add(data, start, ends, NOTHING, NOTHING)

    def add_words(self, words: Words) -> NDArray[np.int64]:
        """Add the counts of words that were counted elsewhere; where each begins in the data of `self.words()`."""
        starts = np.empty(len(words.counts), np.int64)
        self._add(words.data, 0, np.ascontiguousarray(words.offsets[1:]), words.counts, starts)
        return starts

    def _add(
        self,
        data: NDArray[np.uint8],
        start: int,
        ends: NDArray[np.int64],
        weights: NDArray[np.int64],
        starts: NDArray[np.int64],
    ) -> None:
        # Compiled code is made for one kind of array alone, and those of Arrow are read-only.
        data, weights = data.view(), weights.view()
        data.flags.writeable = weights.flags.writeable = False
        done, words = 0, (data, start, ends, weights)
        while (done := _add(*words, done, self._table, self._buffer, self._sizes, starts)) < len(ends):
            self._make_room(int(ends[done] - (ends[done - 1] if done else start)))

    def _make_room(self, num_bytes: int) -> None:
        """Make whichever is full twice as large, so that a word of `num_bytes` finds a place."""
        num_words, used = self._sizes
        if 2 * num_words >= len(self._table):
            table = np.zeros((2 * len(self._table), 4), np.int64)
            _copy_rows(self._table, table)
            self._table = table
        if used + num_bytes > len(self._buffer):
            buffer = np.zeros(2 * len(self._buffer) + num_bytes, np.uint8)
            buffer[:used] = self._buffer[:used]
            self._buffer = buffer

    def words(self) -> Words:
        """The different words, in the order in which they first came."""
        num_words, used = self._sizes
        counts, offsets = np.empty(num_words, np.int64), np.empty(num_words + 1, np.int64)
        rows = np.flatnonzero(self._table[:, HASH])
        rows = rows[np.argsort(self._table[rows, START], kind="stable")]
        counts[:], offsets[:-1], offsets[-1] = self._table[rows, COUNT], self._table[rows, START], used
        return Words(self._buffer[:used].copy(), offsets, counts)


@numba.njit(cache=True, nogil=True)
def _add(
    data: NDArray[np.uint8],
    start: int,
    ends: NDArray[np.int64],
    weights: NDArray[np.int64],
    done: int,
    table: NDArray[np.int64],
    buffer: NDArray[np.uint8],
    sizes: NDArray[np.int64],
    starts: NDArray[np.int64],
) -> int:
    """Add words from number `done` on; how many are done with when all are, or when there is no room for the next.

    Without `weights` each counts once. `starts` is told where each lies in the buffer, if it has room for any.
    """
    first = ends[done - 1] if done else start
    for word in range(done, len(ends)):
        last = ends[word]
        slot = _slot_of(data, first, last, table, buffer)
        if table[slot, HASH] == 0:
            length, used = last - first, sizes[1]
            if 2 * sizes[0] >= len(table) or used + length > len(buffer):
                return word
            copy(data, first, last, buffer, used)
            table[slot, HASH], table[slot, START] = np.int64(hash_bytes(data, first, last)), used
            table[slot, COUNT], table[slot, LENGTH] = 0, length
            sizes[0] += 1
            sizes[1] += length
        table[slot, COUNT] += weights[word] if len(weights) else 1
        if len(starts):
            starts[word] = table[slot, START]
        first = last
    return len(ends)


@kernel
def _slot_of(
    data: NDArray[np.uint8], first: int, last: int, table: NDArray[np.int64], buffer: NDArray[np.uint8]
) -> int:
    """The slot of the word `data[first:last]`, or the empty one where it belongs."""
    hashed = np.int64(hash_bytes(data, first, last))
    mask = len(table) - 1
    slot = int((hashed >> 1) & mask)
    while table[slot, HASH] != 0:
        candidate = table[slot, HASH] == hashed and table[slot, LENGTH] == last - first
        if candidate and _equal(data, first, last, buffer, table[slot, START]):
            break
        slot = (slot + 1) & mask
    return slot


@kernel
def _equal(data: NDArray[np.uint8], first: int, last: int, other: NDArray[np.uint8], start: int) -> bool:
    """Whether `data[first:last]` also stands at `start` of `other`."""
    while last - first >= 8:
        if load(data, first) != load(other, start):
            return False
        first += 8
        start += 8
    return bool(load_rest(data, first, last) == load_rest(other, start, start + last - first))


@numba.njit(cache=True, nogil=True)
def _copy_rows(old: NDArray[np.int64], new: NDArray[np.int64]) -> None:
    mask = len(new) - 1
    for row in range(len(old)):
        if old[row, HASH] != 0:
            slot = (old[row, HASH] >> 1) & mask
            while new[slot, HASH] != 0:
                slot = (slot + 1) & mask
            new[slot] = old[row]
