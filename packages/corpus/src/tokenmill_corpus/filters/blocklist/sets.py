"""Sets of strings by their 64-bit hashes, for compiled code.

A list of five million domains takes 128 MB. Two different strings share a hash once in 2⁶⁴: over a billion documents
and such a list, a wrong match has a chance of one in a few thousand.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.hashing import add, empty_set, mix

SEED = np.uint64(0xCBF29CE484222325)


@numba.njit(cache=True)
def step(h: np.uint64, value: int) -> np.uint64:
    """A hash that goes on with a byte or a code point (FNV-1a's step)."""
    return (h ^ np.uint64(value)) * np.uint64(0x100000001B3)


@numba.njit(cache=True)
def key_of(h: np.uint64) -> np.uint64:
    """What stands in the set for a finished hash: never 0, which marks an empty slot."""
    key: np.uint64 = mix(h) | np.uint64(1)
    return key


@numba.njit(cache=True)
def make_set(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The set of these keys."""
    table = empty_set(len(keys))
    for key in keys:
        add(table, key)
    return table


@numba.njit(cache=True)
def contains(table: NDArray[np.uint64], key: np.uint64) -> bool:
    """Whether `key` is in the set."""
    mask = np.uint64(len(table) - 1)
    slot = (key >> np.uint64(1)) & mask
    while table[slot] != 0:
        if table[slot] == key:
            return True
        slot = (slot + np.uint64(1)) & mask
    return False
