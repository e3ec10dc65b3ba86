"""Which pair goes next: a binary heap of (count, pair), with the highest count, then the smallest pair, on top.

Its arrays have shape (room, 2); the first `size` rows are the heap.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.kernel import kernel


@kernel
def push(heap: NDArray[np.int64], size: int, count: int, pair: int) -> None:
    """Put an entry into a heap of `size`, which has room for it."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if not _goes_first(count, pair, heap[parent, 0], heap[parent, 1]):
            break
        heap[i, 0], heap[i, 1] = heap[parent, 0], heap[parent, 1]
        i = parent
    heap[i, 0], heap[i, 1] = count, pair


@kernel
def replace(heap: NDArray[np.int64], size: int, i: int, count: int, pair: int) -> None:
    """Put an entry in place of entry `i` of a heap of `size`, which it does not go before."""
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and _goes_first(heap[child + 1, 0], heap[child + 1, 1], heap[child, 0], heap[child, 1]):
            child += 1
        if not _goes_first(heap[child, 0], heap[child, 1], count, pair):
            break
        heap[i, 0], heap[i, 1] = heap[child, 0], heap[child, 1]
        i = child
    heap[i, 0], heap[i, 1] = count, pair


@kernel
def pop(heap: NDArray[np.int64], size: int) -> None:
    """Take the top from a heap of `size`."""
    replace(heap, size - 1, 0, heap[size - 1, 0], heap[size - 1, 1])


@kernel
def _goes_first(count: int, pair: int, other_count: int, other_pair: int) -> bool:
    """Whether the first pair is to be merged before the other."""
    return count > other_count or (count == other_count and pair < other_pair)


@numba.njit(cache=True, nogil=True)
def heapify(heap: NDArray[np.int64], size: int) -> None:
    """Make a heap of the first `size` rows."""
    for i in range(size // 2 - 1, -1, -1):
        replace(heap, size, i, heap[i, 0], heap[i, 1])
