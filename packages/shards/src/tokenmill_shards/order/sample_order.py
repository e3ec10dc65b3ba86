"""The order of a mixture: which source the n-th sample of training comes from, and which of its samples it is.

    global index ─▶ BlockOrder of the common sources   (index minus the pool's count so far)
                 └▶ SampleOrder of the rare pool       (the pool's count so far), split again if need be

A pure function of integer weights, without files or start-up: any index in O(sources) time and O(1) memory.

Let w = weight / sum of weights. While every source has at least one sample a block, its count among the first n
samples is *within 1* of n·w, for every n. Rarer sources are pooled and the pool is drawn at evenly spaced indices,
⌊n·w_pool + 1/2⌋ of the first n; inside the pool the same rules hold. Being up to half a sample early or late adds at
most half of a source's share of its side of the split, so a count is always within

    1 + ½ · Σ over the splits above the source of (its weight / weight of its side)     of n·w,

which is below 1.5 at one split and, since a source that is split off has less than 1/block size of its side, below
2 + 1/block size at any number. Counts sum to n and never fall.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.errors import InputError
from tokenmill_shards.order.blocks import BlockOrder

BLOCK_SIZE = 1 << 16
MAX_WEIGHT_SUM = 1 << 46
"""Keeps the arithmetic inside a block within 64 bits."""


class SampleOrder:
    """The order for `weights`, integers over their own sum. A source of weight 0 is never drawn.

    Raises InputError for a negative weight, no positive one, or a sum above 2^46. Safe to share between threads.
    """

    def __init__(self, weights: Sequence[int], block_size: int = BLOCK_SIZE) -> None:
        self.weights = [int(weight) for weight in weights]
        self._check()
        drawn = [source for source, weight in enumerate(self.weights) if weight]
        self._denominator, heaviest = sum(self.weights), max(self.weights)
        while heaviest * block_size < self._denominator:  # more sources than slots: all would be rare
            block_size *= 2
        common = [source for source in drawn if self.weights[source] * block_size >= self._denominator]
        rare = [source for source in drawn if self.weights[source] * block_size < self._denominator]
        self._common = BlockOrder([self.weights[source] for source in common], block_size)
        self._rare = SampleOrder([self.weights[source] for source in rare], block_size) if rare else None
        self._rare_weight = sum(self.weights[source] for source in rare)
        self._common_ids, self._rare_ids = np.array(common, np.int32), np.array(rare, np.int32)

    def locate(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Source of each sample, and its number among the samples of that source, from 0.

        `indices` are global sample indices from 0, shape (B,), in any order; both results have their shape.
        """
        indices = np.asarray(indices, np.int64)
        if self._rare is None:
            sources, occurrences = self._common.locate(indices)
            return self._common_ids[sources], occurrences
        before = _pool_count(indices, self._rare_weight, self._denominator)
        pooled = _pool_count(indices + 1, self._rare_weight, self._denominator) > before
        sources, occurrences = np.empty(indices.size, np.int32), np.empty(indices.size, np.int64)
        for side, ids, mask, places in (
            (self._common, self._common_ids, ~pooled, indices - before),
            (self._rare, self._rare_ids, pooled, before),
        ):
            chosen, occurrences[mask] = side.locate(places[mask])
            sources[mask] = ids[chosen]
        return sources, occurrences

    def counts(self, n: int) -> list[int]:
        """Samples of each source among the first `n`."""
        pooled = (n * self._rare_weight + self._denominator // 2) // self._denominator
        counts = [0] * len(self.weights)
        for source, count in zip(self._common_ids.tolist(), self._common.counts(n - pooled).tolist(), strict=True):
            counts[source] = count
        if self._rare is not None:
            for source, count in zip(self._rare_ids.tolist(), self._rare.counts(pooled), strict=True):
                counts[source] = count
        return counts

    def _check(self) -> None:
        if any(weight < 0 for weight in self.weights):
            raise InputError(f"weights must not be negative, got {min(self.weights)}")
        if not 0 < sum(self.weights) <= MAX_WEIGHT_SUM:
            raise InputError(
                f"weights must sum to between 1 and {MAX_WEIGHT_SUM}, got {sum(self.weights)}; "
                "give at least one source a positive weight"
            )


def _pool_count(n: NDArray[np.int64], weight: int, denominator: int) -> NDArray[np.int64]:
    """⌊n · weight / denominator + 1/2⌋ of each n, exactly.

    The products pass 64 bits, so n is split at its lowest 16 bits and the few high parts are taken in long integers.
    Adding ⌊denominator / 2⌋ is as good as adding the half: a numerator is whole.
    """
    highs, places = np.unique(n >> 16, return_inverse=True)
    bases = [divmod((high << 16) * weight + denominator // 2, denominator) for high in highs.tolist()]
    quotients, remainders = np.array(bases, np.int64).reshape(-1, 2).T
    counts: NDArray[np.int64] = quotients[places] + (remainders[places] + (n & 0xFFFF) * weight) // denominator
    return counts
