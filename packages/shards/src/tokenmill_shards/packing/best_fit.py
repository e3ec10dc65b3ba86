"""Best-fit decreasing (Ding et al. 2024, arXiv:2404.10830): pieces into sequences, none cut, little room left over.

The longest piece first, each goes where it fits most tightly: into the open sequence with the least room that holds it,
of several the one filled last, or into a new one. Open sequences are kept in lists by their room, and a binary tree
over the rooms says which lists hold any, so n pieces take O(n log capacity) time and O(n + capacity) memory.
"""

import numpy as np
from numpy.typing import NDArray

from tokenmill_shards.compiled import compiled


def best_fit(lengths: NDArray[np.int32], capacity: int) -> tuple[NDArray[np.int32], int]:
    """(the sequence of each piece, shape (n,); how many sequences there are) for pieces of 1 to `capacity` tokens.

    Of pieces of one length the first goes first, so the result is decided by `lengths` alone.
    """
    assert not lengths.size or 1 <= lengths.min() <= lengths.max() <= capacity
    sequences = np.empty(lengths.size, np.int32)
    return sequences, _place(lengths, capacity, sequences)


@compiled
def _place(lengths: NDArray[np.int32], capacity: int, sequences: NDArray[np.int32]) -> int:
    """Fill `sequences` (n,); how many there are."""
    ends = np.zeros(capacity + 2, np.int64)  # a counting sort, longest first: where the pieces of each length end
    for size in lengths:
        ends[size] += 1
    for length in range(capacity, -1, -1):
        ends[length] += ends[length + 1]
    order = np.empty(lengths.size, np.int32)
    for i in range(lengths.size - 1, -1, -1):
        ends[lengths[i]] -= 1
        order[ends[lengths[i]]] = i

    first_leaf = 1
    while first_leaf <= capacity:
        first_leaf *= 2
    any_open = np.zeros(2 * first_leaf, np.bool_)  # by node: whether a sequence with such a room is open
    last_filled = np.full(capacity + 1, -1, np.int32)  # by room, a list linked through `filled_before`
    filled_before = np.empty(lengths.size, np.int32)
    num_sequences = 0
    for piece in order:
        length = int(lengths[piece])
        node = first_leaf + length
        if not any_open[node]:
            while node > 1 and (node & 1 or not any_open[node + 1]):
                node //= 2
            if node > 1:  # the least room above: the first leaf below the sibling to the right
                node += 1
                while node < first_leaf:
                    node = 2 * node if any_open[2 * node] else 2 * node + 1
        if node > 1:
            room = node - first_leaf
            sequence = int(last_filled[room])
            last_filled[room] = filled_before[sequence]
            if last_filled[room] < 0:
                any_open[node] = False
                while node > 1 and not any_open[node ^ 1]:
                    node //= 2
                    any_open[node] = False
        else:
            room, sequence = capacity, num_sequences
            num_sequences += 1
        sequences[piece] = sequence
        room -= length
        if room > 0:
            filled_before[sequence] = last_filled[room]
            last_filled[room] = sequence
            node = first_leaf + room
            while node and not any_open[node]:
                any_open[node] = True
                node //= 2
    return num_sequences
