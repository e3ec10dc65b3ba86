"""64-bit hashes and sets of them, for compiled code."""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.eight_bytes import load, load_rest
from tokenmill_core.compiled.kernel import kernel


@kernel
def mix(x: np.uint64) -> np.uint64:
    """A bijection of 64 bits that spreads every bit (the splitmix64 finaliser)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel
def hash_bytes(text: NDArray[np.uint8], first: int, last: int) -> np.uint64:
    """A hash of `text[first:last]`, never 0, which marks an empty slot of a set."""
    h = np.uint64(last - first) * FACTOR
    while last - first >= 8:
        h = (h ^ load(text, first)) * FACTOR
        h ^= h >> np.uint64(32)
        first += 8
    return mix(h ^ load_rest(text, first, last)) | np.uint64(1)


FACTOR = np.uint64(0x9E3779B97F4A7C15)


def hash_each(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """`hash_bytes` of each `data[offsets[i]:offsets[i + 1]]`."""
    hashes = np.empty(len(offsets) - 1, np.uint64)
    _hash_each(_read_only(data), _read_only(offsets), hashes)
    return hashes


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view: kernels are compiled for one kind of array alone, and Arrow's own cannot be written."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


@numba.njit(cache=True, nogil=True)
def _hash_each(data: NDArray[np.uint8], offsets: NDArray[np.int64], hashes: NDArray[np.uint64]) -> None:
    for i in range(len(hashes)):
        hashes[i] = hash_bytes(data, offsets[i], offsets[i + 1])


@numba.njit(cache=True)
def empty_set(capacity: int) -> NDArray[np.uint64]:
    """An open-addressing set with room for `capacity` hashes."""
    return np.zeros(set_size(capacity), np.uint64)


@kernel
def set_size(capacity: int) -> int:
    """Slots of a set with room for `capacity` hashes: a power of two, of which at most half are taken."""
    size = 8
    while size < 2 * capacity:
        size *= 2
    return size


@kernel
def add(table: NDArray[np.uint64], key: np.uint64) -> int:
    """1 if `key` was in the set, else put it in and give 0."""
    mask = np.uint64(len(table) - 1)
    slot = (key >> np.uint64(1)) & mask
    while table[slot] != 0:
        if table[slot] == key:
            return 1
        slot = (slot + np.uint64(1)) & mask
    table[slot] = key
    return 0
