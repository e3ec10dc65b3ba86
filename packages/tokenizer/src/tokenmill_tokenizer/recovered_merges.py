"""The merges behind a vocabulary in which tokens have ranks, as tiktoken and SentencePiece keep them.

They join any two neighbours that make up a token together, the best rank first and leftmost among equals. Yet a token
is always made of the same two: what happens within its bytes, as long as nothing crosses their bounds, is what happens
when they stand alone. So joining each token's own parts shows its one merge, and these, by rank, say it all.
"""

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
    none = max(ranks.values(), default=0) + 1
    for token in sorted(ranks, key=ranks.__getitem__):
        pair = _last_pair(list(parts_of(token)), ranks, none)
        if pair is not None:
            merges[token] = pair
    return merges


def _last_pair(parts: list[T], ranks: Mapping[T, int], none: int) -> tuple[T, T] | None:
    """The two parts that are left when all others were joined, or none where they cannot be or there is one only.

    `none` is a rank that no token has.
    """
    while len(parts) > 2:
        found = [ranks.get(left + right, none) for left, right in itertools.pairwise(parts)]
        best = min(found)
        if best == none:
            return None
        place = found.index(best)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return (parts[0], parts[1]) if len(parts) == 2 else None
