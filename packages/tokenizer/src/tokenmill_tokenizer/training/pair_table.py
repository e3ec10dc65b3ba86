"""The pairs that may still be merged: a hash table, a row a pair."""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.hashing import mix
from tokenmill_core.compiled.kernel import kernel

KEY, COUNT, FIRST, NUM = range(4)
"""Columns: pair + 1, or 0 in an empty slot; count; its positions' place in the pool; how many."""


@kernel
def pair_of(left: int, right: int) -> int:
    """Two ids as one number, which sorts as they do."""
    return np.int64(left) << 32 | right  # type: ignore[return-value]  # signed, for numba


@kernel
def find(pairs: NDArray[np.int64], pair: int) -> int:
    """The slot of a pair, or -1."""
    mask = len(pairs) - 1
    slot = int(np.int64(mix(np.uint64(pair))) & mask)
    while pairs[slot, KEY] != 0:
        if pairs[slot, KEY] == pair + 1:
            return slot
        slot = (slot + 1) & mask
    return -1


@kernel
def lower(pairs: NDArray[np.int64], pair: int, count: int) -> None:
    """Take `count` from that of a pair, if it is known."""
    slot = find(pairs, pair)
    if slot >= 0:
        pairs[slot, COUNT] -= count


@kernel
def insert(pairs: NDArray[np.int64], pair: int, count: int, first: int, num: int) -> None:
    """Put a pair into a table that has room for it, and not the pair itself."""
    mask = len(pairs) - 1
    slot = int(np.int64(mix(np.uint64(pair))) & mask)
    while pairs[slot, KEY] != 0:
        slot = (slot + 1) & mask
    pairs[slot, KEY], pairs[slot, COUNT], pairs[slot, FIRST], pairs[slot, NUM] = pair + 1, count, first, num


@numba.njit(cache=True, nogil=True)
def insert_all(table: NDArray[np.int64], pairs: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
    """Put the pairs in these slots into another table."""
    for slot in slots:
        insert(table, pairs[slot, KEY] - 1, pairs[slot, COUNT], pairs[slot, FIRST], pairs[slot, NUM])
