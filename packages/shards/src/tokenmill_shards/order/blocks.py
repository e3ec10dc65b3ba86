"""Which source each sample comes from, drawn a block at a time from integer weights.

Item k (1-based) of a source with share w is a unit job with the window ((k−1)/w, k/w). Serving every item within its
window is the same as keeping |count − n·w| < 1 at every prefix n. Two steps serve them all:

    boundary(s)  who of the sources inside a window at slot s has been served already: leaves past and future feasible
    draw         inside a block, from one boundary to the next: earliest deadline first

The boundary. A source with rem = s·W mod D > 0 is rem/D through its window; Σ rem / D = m is whole, and m of them count
as served. Walk through them by window start, earliest first; each time the running Σ rem/D reaches a whole number,
serve, of those walked so far, the one whose window ends first. Then
- of the sources that started before any x, at least ⌊their Σ rem/D⌋ are served, since each service so far was theirs:
  the jobs to be done in [x, s) are no more than its slots;
- of the sources that end after any y, at most ⌊their Σ rem/D⌋ are served: when the last of them was, all walked ones
  that end sooner had been, and these make up at least their own share of the running sum. So the jobs left for
  [s, y) are no more than its slots.
By Hall's theorem for interval windows both sides can be scheduled, and earliest deadline first does it. A window must
not span a whole block, which is why every source here has at least one sample a block. (Largest remainder picks by
rem/D alone: with ten sources of weight 999 and ten of weight 1, all halfway, it may leave the ten heavy ones unserved
together, and they all end within the next slot.)
"""

import heapq
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenmill_shards.compiled import compiled

BLOCKS_KEPT = 4


class Boundary(NamedTuple):
    """Where each source stands before slot s."""

    floors: NDArray[np.int64]
    """⌊s·w⌋ of each source."""
    remainders: NDArray[np.int64]
    """s·W mod D of each source."""
    served: NDArray[np.int64]
    """1 where the item whose window holds s has been served, else 0."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """Samples of each source before slot s."""
        return self.floors + self.served


class Block(NamedTuple):
    """The draws of one block. `before[sources[i]] + ranks[i]` is the occurrence number of its i-th sample."""

    sources: NDArray[np.int32]
    ranks: NDArray[np.int32]
    before: NDArray[np.int64]


class BlockOrder:
    """The order of sources that each have at least one sample a block: `block_size · min(weights) ≥ sum(weights)`.

    Needs positive weights with `block_size · weight + 3 · sum(weights) < 2^63`. Safe to share between threads.
    """

    def __init__(self, weights: Sequence[int], block_size: int) -> None:
        assert min(weights) * block_size >= sum(weights), "a source is rarer than one sample a block"
        self.block_size = block_size
        self.denominator = sum(weights)
        self.weights = np.array(weights, np.int64)
        # Consecutive blocks share a boundary, and neighbouring reads share a block.
        self.boundary = lru_cache(BLOCKS_KEPT)(self._boundary)
        self.block = lru_cache(BLOCKS_KEPT)(self._draw)

    def counts(self, n: int) -> NDArray[np.int64]:
        """Samples of each source among the first `n`."""
        number, rest = divmod(n, self.block_size)
        counts = self.boundary(number).counts
        if rest:
            counts = counts + np.bincount(self.block(number).sources[:rest], minlength=counts.size)
        return counts

    def locate(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Source and occurrence number of each sample index, in any order."""
        sources, occurrences = np.empty(indices.size, np.int32), np.empty(indices.size, np.int64)
        for number, places in _by_block(indices, self.block_size):
            block, slots = self.block(number), indices[places] - number * self.block_size
            chosen = block.sources[slots]
            sources[places] = chosen
            occurrences[places] = block.before[chosen] + block.ranks[slots]
        return sources, occurrences

    def _boundary(self, number: int) -> Boundary:
        slot, denominator = number * self.block_size, self.denominator
        pairs = [divmod(slot * weight, denominator) for weight in self.weights.tolist()]  # too long for 64 bits
        floors, remainders = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
        return Boundary(floors, remainders, _served(remainders, self.weights, denominator))

    def _draw(self, number: int) -> Block:
        start, end = self.boundary(number), self.boundary(number + 1)
        quotas = end.counts - start.counts
        sources, ranks = np.empty(self.block_size, np.int32), np.empty(self.block_size, np.int32)
        _earliest_deadline_first(self.weights, self.denominator, start.remainders, start.served, quotas, sources, ranks)
        return Block(sources, ranks, start.counts)


def _by_block(indices: NDArray[np.int64], block_size: int) -> list[tuple[int, NDArray[np.intp] | slice]]:
    """(block number, places in `indices`) of each block that is asked for."""
    numbers = indices // block_size
    if not indices.size:
        return []
    if numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
        return [(int(numbers[0]), slice(None))]
    order = np.argsort(numbers, kind="stable")
    firsts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    return [(int(numbers[places[0]]), places) for places in np.split(order, firsts[1:])]


def _served(remainders: NDArray[np.int64], weights: NDArray[np.int64], denominator: int) -> NDArray[np.int64]:
    """Which sources count as served at a boundary, by the walk that the module describes.

    Windows are compared by the slots they begin and end in: only whole slots matter to a schedule.
    """
    served = np.zeros_like(remainders)
    starts, ends = -remainders // weights, -((remainders - denominator) // weights)
    waiting: list[tuple[int, int]] = []
    running, passed = 0, 0
    for source in np.argsort(starts, kind="stable").tolist():
        remainder = int(remainders[source])
        if remainder == 0:
            continue
        heapq.heappush(waiting, (int(ends[source]), source))
        running += remainder
        if running // denominator > passed:  # remainders are below the denominator: one at a time
            passed += 1
            served[heapq.heappop(waiting)[1]] = 1
    return served


@compiled
def _earliest_deadline_first(
    weights: NDArray[np.int64],
    denominator: int,
    remainders: NDArray[np.int64],
    served: NDArray[np.int64],
    quotas: NDArray[np.int64],
    sources: NDArray[np.int32],
    ranks: NDArray[np.int32],
) -> None:
    """Fill `sources` and `ranks` (shape (slots,)) with `quotas[j]` draws of each source j.

    Time is counted from the block's start, where a source stands at −remainder: its item i has the window
    ((i−1)·D − remainder)/W to (i·D − remainder)/W. Equal deadlines go to the lower source.
    """
    slots, nobody = sources.size, -1
    waiting = [(np.int64(0), np.int64(0)) for _ in range(0)]  # a heap of (deadline, source), empty but typed
    first_released = np.full(slots, nobody, np.int64)  # by slot, a list linked through `next_released`
    next_released = np.full(weights.size, nobody, np.int64)
    ends = np.empty(weights.size, np.int64)  # end of the item to be released next, times W
    released, drawn = np.zeros(weights.size, np.int64), np.zeros(weights.size, np.int64)
    for source in range(weights.size):
        ends[source] = (1 + served[source]) * denominator - remainders[source]
        release = max(0, (ends[source] - denominator) // weights[source])
        if quotas[source] > 0:
            next_released[source] = first_released[release]
            first_released[release] = source
    for slot in range(slots):
        while first_released[slot] != nobody:
            ready = first_released[slot]
            first_released[slot] = next_released[ready]
            end = ends[ready] // weights[ready]  # of this item, rounded down: the next is released then
            deadline = end if end * weights[ready] < ends[ready] else end - 1
            heapq.heappush(waiting, (min(deadline, slots - 1), ready))
            released[ready] += 1
            ends[ready] += denominator
            if released[ready] < quotas[ready]:
                next_released[ready] = first_released[end]
                first_released[end] = ready
        due, chosen = heapq.heappop(waiting)
        assert due >= slot, "an item missed its window: the boundary states are wrong"
        sources[slot], ranks[slot] = chosen, drawn[chosen]
        drawn[chosen] += 1
