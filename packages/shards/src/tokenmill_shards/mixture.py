"""The mixture as a pure function: global sample index ─▶ (source, epoch, window).

    index ─ stage ─ SampleOrder of its weights ─▶ source, occurrence k     (k goes on from the stages before)
                                                  │
            epoch = k // T, permutation of k % T ─┘─▶ window               (T windows of the source, keyed by the epoch)

It needs the mixture's manifest and the sequence length L, nothing else: no file, no start-up, O(sources) time and O(1)
memory for any index. Window i of a source covers tokens i·L to i·L + L of its training documents: L inputs, and the
same shifted by one as labels, so that an epoch trains on every token but the first and the last few.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.errors import InputError
from tokenmill_core.manifest import SourceUse
from tokenmill_core.mixture_manifest import MixtureManifest, MixtureSource
from tokenmill_shards.order.permutation import ROUNDS, epoch_key, inverse_groups, permute_groups, round_keys
from tokenmill_shards.order.sample_order import BLOCK_SIZE, SampleOrder

EPOCH_KEYS_KEPT = 1 << 14
CERTAINLY_WITHIN = 3
"""Samples that a count may be off its share, rounded up generously: see `order.sample_order` for the bounds."""


class Located(NamedTuple):
    """Where samples come from: three arrays of shape (B,)."""

    source: NDArray[np.int32]
    epoch: NDArray[np.int64]
    window: NDArray[np.int64]


class Stage(NamedTuple):
    """The samples from `first` on, up to the next stage."""

    first: int
    order: SampleOrder
    drawn_before: NDArray[np.int64]
    """Samples of each source in all stages before."""


def num_windows(num_tokens: int, sequence_length: int) -> int:
    """Windows of `sequence_length` inputs and their labels in a stream. Each starts on the last label of the former."""
    return max(0, (num_tokens - 1) // sequence_length)


class Mixture:
    """The order of `manifest` at one sequence length. Safe to share between threads.

    Raises InputError where a source that is drawn from has not one window of that length.
    """

    def __init__(self, manifest: MixtureManifest, sequence_length: int) -> None:
        if sequence_length < 1:
            raise InputError(f"sequence_length must be at least 1, got {sequence_length}")
        self.manifest = manifest
        self.sequence_length = sequence_length
        self.num_windows = np.array(
            [num_windows(source.training_tokens, sequence_length) for source in manifest.sources], np.int64
        )
        """Windows of each source that an epoch of it draws, shape (sources,)."""
        self._check_lengths()
        self._names = [source.name for source in manifest.sources]
        # Never 0, so that one can divide by it: a source without windows has no weight and is never drawn.
        self._divisors = np.maximum(self.num_windows, 1)
        self.stages = self._chain_stages()
        self._firsts = np.array([stage.first for stage in self.stages], np.int64)
        self._keys = lru_cache(EPOCH_KEYS_KEPT)(self._round_keys)

    def locate(self, indices: NDArray[np.int64]) -> Located:
        """Source, epoch and window of each global sample index of `indices` (B,), in any order."""
        source, occurrence = self.occurrences(indices)
        epoch, place = np.divmod(occurrence, self._divisors[source])
        pair, pair_source, keys = self._pairs(source, epoch)
        return Located(source, epoch, permute_groups(place, pair, self._divisors[pair_source], keys))

    def occurrences(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Source of each sample index of `indices` (B,), and its number among all samples of that source, from 0."""
        stage_of = np.searchsorted(self._firsts, indices, "right") - 1
        if len(self.stages) == 1 or (stage_of.size and stage_of.min() == stage_of.max()):
            return self._in_stage(int(stage_of[0]) if stage_of.size else 0, indices)
        source, occurrence = np.empty(indices.size, np.int32), np.empty(indices.size, np.int64)
        for number in np.unique(stage_of).tolist():
            chosen = stage_of == number
            source[chosen], occurrence[chosen] = self._in_stage(number, indices[chosen])
        return source, occurrence

    def counts(self, num_samples: int) -> NDArray[np.int64]:
        """Samples of each source among the first `num_samples`: shape (sources,)."""
        stage = self.stages[int(np.searchsorted(self._firsts, num_samples, "right")) - 1]
        return stage.drawn_before + np.array(stage.order.counts(num_samples - stage.first), np.int64)

    def use(self, num_samples: int) -> tuple[SourceUse, ...]:
        """What the first `num_samples` draw from each source."""
        rows = zip(self._names, self.counts(num_samples).tolist(), self._divisors.tolist(), strict=True)
        return tuple(
            SourceUse(name=name, samples=count, tokens=count * self.sequence_length, epochs=count / windows)
            for name, count, windows in rows
        )

    def samples_of(self, source: int, window: int, below: int) -> list[int]:
        """The global sample indices under `below` that are `window` of `source`: at most one an epoch, rising.

        It undoes `locate`: the place of the window in each epoch's permutation, and the sample that draws it.
        """
        drawn, size = int(self.counts(below)[source]), int(self._divisors[source])
        epochs = np.arange(-(-drawn // size), dtype=np.int64)
        if not epochs.size:
            return []
        pair, _, keys = self._pairs(np.full(epochs.size, source, np.int32), epochs)
        windows, sizes = np.full(epochs.size, window, np.int64), np.full(len(keys), size, np.int64)
        occurrences = epochs * size + inverse_groups(windows, pair, sizes, keys)
        return [self._index_of(source, k, below) for k in occurrences.tolist() if k < drawn]

    def _index_of(self, source: int, occurrence: int, below: int) -> int:
        """The sample index, under `below`, of the source's sample number `occurrence`.

        A count is never further than `CERTAINLY_WITHIN` from its share, so it lies in a range that is known; where that
        is long, counts never falling halves it.
        """
        number = max(n for n, stage in enumerate(self.stages) if stage.drawn_before[source] <= occurrence)
        stage, weight = self.stages[number], self.manifest.stages[number].weights[source]
        own, total = occurrence - int(stage.drawn_before[source]), self.manifest.denominator
        low = stage.first + max(0, (own - CERTAINLY_WITHIN) * total // weight)
        high = min(below - 1, stage.first + (own + CERTAINLY_WITHIN) * total // weight)
        while high - low >= BLOCK_SIZE:
            middle = (low + high) // 2
            if int(self.counts(middle + 1)[source]) > occurrence:
                high = middle
            else:
                low = middle + 1
        sources, occurrences = self.occurrences(np.arange(low, high + 1, dtype=np.int64))
        return low + int(np.flatnonzero((sources == source) & (occurrences == occurrence))[0])

    def _in_stage(self, number: int, indices: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        stage = self.stages[number]
        source, occurrence = stage.order.locate(indices - stage.first if stage.first else indices)
        return source, occurrence + stage.drawn_before[source] if number else occurrence

    def _pairs(
        self, source: NDArray[np.int32], epoch: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
        """Samples of one source and epoch share a permutation: (its number for each, source and key of each number)."""
        pairs, numbers = np.unique(epoch * len(self._names) + source, return_inverse=True)
        pair_epoch, pair_source = np.divmod(pairs, len(self._names))
        keys = [self._keys(s, e) for s, e in zip(pair_source.tolist(), pair_epoch.tolist(), strict=True)]
        return numbers, pair_source, np.array(keys, np.uint64).reshape(len(keys), ROUNDS)

    def _round_keys(self, source: int, epoch: int) -> NDArray[np.uint64]:
        return round_keys(epoch_key(self.manifest.shuffle_digest, self.manifest.seed, self._names[source], epoch))

    def _chain_stages(self) -> Sequence[Stage]:
        stages: list[Stage] = []
        drawn = np.zeros(len(self._names), np.int64)
        for stage in self.manifest.stages:
            first = -(-stage.first_token // self.sequence_length)
            if stages:
                drawn = drawn + np.array(stages[-1].order.counts(first - stages[-1].first), np.int64)
            stages.append(Stage(first, SampleOrder(stage.weights), drawn))
        return stages

    def _check_lengths(self) -> None:
        for number, source in enumerate(self.manifest.sources):
            weighted = any(stage.weights[number] for stage in self.manifest.stages)
            if weighted and not self.num_windows[number]:
                raise InputError(_too_short(source, self.sequence_length))


def _too_short(source: MixtureSource, sequence_length: int) -> str:
    held_out = f" ({source.num_held_out_tokens:,} more are held out)" if source.held_out_tokens else ""
    return (
        f"source {source.name} has {source.training_tokens:,} tokens{held_out}; sequence length {sequence_length} "
        f"needs at least {sequence_length + 1:,}: use a shorter sequence length, more data, or no weight for it"
    )
