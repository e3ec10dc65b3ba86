"""All that is known while merges are learnt, and making room for more of it."""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_tokenizer.training.pair_heap import heapify
from tokenmill_tokenizer.training.pair_table import COUNT, FIRST, KEY, NUM, insert_all

POOL_USED, NUM_PAIRS, HEAP_SIZE, NUM_MERGES, WANTED = range(5)
"""What `State.sizes` holds; `WANTED` is the number of places of the pair that finds no room, or 0."""


class State(NamedTuple):
    """All that training knows; compiled code takes it as it is."""

    symbols: NDArray[np.int32]
    class_ends: NDArray[np.int64]
    class_counts: NDArray[np.int64]
    lengths: NDArray[np.int32]
    """Bytes of each token."""
    merges: NDArray[np.int32]
    """Shape (room for merges, 2): left and right id."""
    pairs: NDArray[np.int64]
    """Shape (slots, 4): see `pair_table`."""
    heap: NDArray[np.int64]
    """Shape (room, 2): see `pair_heap`."""
    pool: NDArray[np.int32]
    """Places of all pairs' left symbols, those of a pair together, rising."""
    made: NDArray[np.int64]
    """Shape (4, ids): of the pairs that a merge makes with each id at its left and at its right, counts and places."""
    found: NDArray[np.int32]
    """Shape (room, 2): the ids beside the new token as they are found, those at its left as -1 - id, and the places."""
    sizes: NDArray[np.int64]


def make_room(state: State, min_count: int) -> State:
    """The same state, less the pairs that are done with, in arrays with room for the merge that found none."""
    wanted = int(state.sizes[WANTED])
    alive = np.flatnonzero(state.pairs[:, COUNT] >= min_count)
    if state.sizes[POOL_USED] + 2 * wanted > 3 * len(state.pool) // 4:
        alive = alive[np.argsort(state.pairs[alive, FIRST], kind="stable")]
        _close_up(state, alive)
    used = int(state.sizes[POOL_USED])
    pool = _longer(state.pool, used, used + used // 4 + 2 * wanted)
    found = _longer(state.found, 0, 2 * wanted)
    num_pairs = 2 * len(alive) + min(2 * wanted, 2 * len(state.lengths))
    pairs = np.zeros((max(len(state.pairs), 1 << (2 * num_pairs - 1).bit_length()), 4), np.int64)
    insert_all(pairs, state.pairs, alive)
    heap = np.zeros((len(pairs) // 2, 2), np.int64)
    heap[: len(alive), 0], heap[: len(alive), 1] = state.pairs[alive, COUNT], state.pairs[alive, KEY] - 1
    state.sizes[NUM_PAIRS] = state.sizes[HEAP_SIZE] = len(alive)
    heapify(heap, len(alive))
    return state._replace(pairs=pairs, heap=heap, pool=pool, found=found)


def _longer(array: NDArray[np.int32], used: int, room: int) -> NDArray[np.int32]:
    """`array`, or where it is shorter than `room` a longer one that begins with the first `used` of it."""
    if len(array) >= room:
        return array
    longer = np.zeros((room, *array.shape[1:]), array.dtype)
    longer[:used] = array[:used]
    return longer


@numba.njit(cache=True, nogil=True)
def _close_up(state: State, alive: NDArray[np.int64]) -> None:
    """Move the positions of the pairs in these slots, in their order in the pool, to its front; drop what is merged."""
    used = 0
    for slot in alive:
        left, right = (state.pairs[slot, KEY] - 1) >> 32, (state.pairs[slot, KEY] - 1) & 0xFFFFFFFF
        first = state.pairs[slot, FIRST]
        state.pairs[slot, FIRST] = used
        for k in range(first, first + state.pairs[slot, NUM]):
            p = state.pool[k]
            if state.symbols[p] == left and state.symbols[p + state.lengths[left]] == right:
                state.pool[used] = p
                used += 1
        state.pairs[slot, NUM] = used - state.pairs[slot, FIRST]
    state.sizes[POOL_USED] = used
