"""The merges behind a vocabulary in which tokens have ranks, as tiktoken and SentencePiece keep them.

They join any two neighbours that make up a token together, the best rank first and leftmost among equals. Yet a token
is always made of the same two: what happens within its bytes, as long as nothing crosses their bounds, is what happens
when they stand alone. So joining each token's own parts shows its one merge, and these, by rank, say it all.
"""

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", str, bytes)


def recover_merges(ranks: Mapping[T, int], parts_of: Callable[[T], Sequence[T]]) -> dict[T, tuple[T, T]]:
    """Token ─▶ the two tokens that merge to it, in the order of `ranks` (lowest first).

    `parts_of` cuts a token into what merging starts from. Those of one part are left out, and those that merging never
    comes to.
    """
    merges = {}
    for token in sorted(ranks, key=ranks.__getitem__):
        pair = _last_pair(list(parts_of(token)), ranks)
        if pair is not None:
            merges[token] = pair
    return merges


def _last_pair(parts: list[T], ranks: Mapping[T, int]) -> tuple[T, T] | None:
    """The two parts that are left when all others were joined, or none where they cannot be or there is one only.

    By a heap of all joins that can be, so that a token of a hundred thousand parts takes no time by its square.
    """
    after, before = [*range(1, len(parts)), -1], [*range(-1, len(parts) - 1)]
    joins = [
        (ranks[left + right], place, len(left), len(right))
        for place, (left, right) in enumerate(itertools.pairwise(parts))
        if left + right in ranks
    ]
    heapq.heapify(joins)
    num_left = len(parts)
    while num_left > 2 and joins:
        _, place, length, next_length = heapq.heappop(joins)
        following = after[place]
        # What was joined since has another length, or none.
        if len(parts[place]) != length or following < 0 or len(parts[following]) != next_length:
            continue
        parts[place] += parts[following]
        parts[following] = parts[following][:0]
        after[place] = after[following]
        if after[place] >= 0:
            before[after[place]] = place
        num_left -= 1
        for left, right in ((before[place], place), (place, after[place])):
            rank = ranks.get(parts[left] + parts[right]) if left >= 0 <= right else None
            if rank is not None:
                heapq.heappush(joins, (rank, left, len(parts[left]), len(parts[right])))
    return (parts[0], parts[after[0]]) if num_left == 2 else None
