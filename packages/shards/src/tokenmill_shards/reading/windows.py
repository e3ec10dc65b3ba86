"""A mixture as training windows by global sample index.

    index ─ SampleOrder ─▶ source, occurrence k ─ epoch = k // T, permutation of k % T ─▶ window ─▶ L + 1 tokens

Nothing is stored and nothing is walked: any batch of any epoch is read alike by any rank, thread or later run.
Window i of a source covers its tokens i·L to i·L + L inclusive: L inputs, and the same shifted by one as labels. The
last windows of a source are held out for validation; training shuffles the T before them, anew each epoch.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.errors import InputError, VerificationError
from tokenmill_core.manifest import MixtureManifest, TokensManifest
from tokenmill_core.manifest_io import check_identity, load_manifest
from tokenmill_shards.order.permutation import ROUNDS, epoch_key, permute_groups, round_keys
from tokenmill_shards.order.sample_order import SampleOrder
from tokenmill_shards.reading.source import TokenSource, Verify, settle

EPOCH_KEYS_KEPT = 1 << 14
OPEN_SHARDS = 512
"""Shards that all sources of a mixture together keep mapped."""


def num_windows(num_tokens: int, sequence_length: int) -> int:
    """Windows of `sequence_length` inputs and their labels in a stream. Each starts on the last label of the former."""
    return max(0, (num_tokens - 1) // sequence_length)


class Located(NamedTuple):
    """Where samples come from: three arrays of shape (B,)."""

    source: NDArray[np.int32]
    epoch: NDArray[np.int64]
    window: NDArray[np.int64]


class Split(NamedTuple):
    """Windows of one source: `num_training` from the start, then `num_validation`."""

    num_training: int
    num_validation: int


class MixtureReader:
    """Reads the training windows of a mixture. Safe to share between threads.

    Raises InputError where a source is too short for the sequence length or the validation share, and
    VerificationError where a source is not the one that was mixed.
    """

    def __init__(self, manifest: MixtureManifest, sources: Sequence[TokenSource], sequence_length: int) -> None:
        if sequence_length < 1:
            raise InputError(f"sequence_length must be at least 1, got {sequence_length}")
        _check_sources(manifest, sources)
        self.manifest = manifest
        self.sources = tuple(sources)
        self.sequence_length = sequence_length
        self.splits = tuple(
            _split(source, sequence_length, manifest.validation_share, item.weight > 0)
            for source, item in zip(sources, manifest.sources, strict=True)
        )
        self.order = SampleOrder([item.weight for item in manifest.sources])
        # Never 0, so that one can divide by it: a source without windows has no weight and is never drawn.
        self._num_training = np.array([max(1, split.num_training) for split in self.splits], np.int64)
        self._keys = lru_cache(EPOCH_KEYS_KEPT)(self._round_keys)

    @classmethod
    def open(cls, path: str, sequence_length: int, *, verify: Verify | str = Verify.AUTO) -> Self:
        """The mixture at `path` (a folder, a JSON file or its URL), its sources found by the paths it names."""
        loaded = load_manifest(path, MixtureManifest)
        tokens = []
        for item in loaded.manifest.sources:
            found = load_manifest(loaded.input_url(item.input), TokensManifest)
            tokens.append(check_identity(found, loaded.manifest.inputs[item.input], loaded.url))
        depth = settle(Verify(verify), [entry for found in tokens for entry in found.manifest.files])
        limit = max(2, OPEN_SHARDS // len(tokens))
        sources = [
            TokenSource(item.name, found, verify=depth, max_open_shards=limit)
            for item, found in zip(loaded.manifest.sources, tokens, strict=True)
        ]
        return cls(loaded.manifest, sources, sequence_length)

    def locate(self, indices: NDArray[np.int64]) -> Located:
        """Source, epoch and window of each global sample index of `indices` (B,), in any order."""
        source, occurrence = self.order.locate(indices)
        epoch, place = np.divmod(occurrence, self._num_training[source])
        # Samples of one source and epoch share a permutation.
        pairs, groups = np.unique(epoch * len(self.sources) + source, return_inverse=True)
        pair_epoch, pair_source = np.divmod(pairs, len(self.sources))
        keys = [self._keys(s, e) for s, e in zip(pair_source.tolist(), pair_epoch.tolist(), strict=True)]
        table = np.array(keys, np.uint64).reshape(len(keys), ROUNDS)
        window = permute_groups(place, groups, self._num_training[pair_source], table)
        return Located(source, epoch, window)

    def windows(self, indices: NDArray[np.int64]) -> NDArray[np.int32]:
        """Tokens of the samples `indices` (B,): shape (B, L + 1), the first L of a row inputs, the last L labels."""
        located = self.locate(indices)
        tokens = np.empty((len(indices), self.sequence_length + 1), np.int32)
        starts = (located.window * self.sequence_length).tolist()
        for row, source, start in zip(tokens, located.source.tolist(), starts, strict=True):
            self.sources[source].read_into(row, start)
        return tokens

    def num_validation(self, name: str) -> int:
        """Held-out windows of source `name`."""
        return self.splits[self._number(name)].num_validation

    def validation(self, name: str, first: int = 0, count: int | None = None) -> NDArray[np.int32]:
        """Held-out windows of source `name`: `count` of them from number `first`, all if not said; (count, L + 1)."""
        number = self._number(name)
        training, held_out = self.splits[number]
        last = held_out if count is None else min(held_out, first + count)
        starts = (training + np.arange(first, max(first, last), dtype=np.int64)) * self.sequence_length
        return self.sources[number].read(starts, self.sequence_length + 1).astype(np.int32)

    def trace(self, index: int) -> list[dict[str, Any]]:
        """The documents of global sample `index`, in order.

        Each has `source`, `epoch`, `window`, `shard`, `document` (number in the shard), `file`, `row`, `id`, and the
        sample's tokens that are the document's, `first_token` to `last_token`, counted from 0 and inclusive.
        """
        source_number, epoch, window = (int(part[0]) for part in self.locate(np.array([index], np.int64)))
        source, start = self.sources[source_number], window * self.sequence_length
        documents, offset = [], start
        while offset <= start + self.sequence_length:
            place = source.locate_document(offset)
            end = min(place.first_token + place.num_tokens, start + self.sequence_length + 1)
            documents.append(
                {"source": source.name, "epoch": epoch, "window": window}
                | {
                    "shard": place.shard,
                    "document": place.document,
                    "file": place.file,
                    "row": place.row,
                    "id": place.id,
                }
                | {"first_token": offset - start, "last_token": end - 1 - start}
            )
            offset = end
        return documents

    def _number(self, name: str) -> int:
        names = [source.name for source in self.sources]
        if name not in names:
            raise InputError(f"the mixture has no source {name!r}; it has {', '.join(names)}")
        return names.index(name)

    def _round_keys(self, source: int, epoch: int) -> NDArray[np.uint64]:
        return round_keys(epoch_key(self.manifest.digest, self.manifest.seed, self.sources[source].name, epoch))


def _check_sources(manifest: MixtureManifest, sources: Sequence[TokenSource]) -> None:
    have, need = [source.name for source in sources], [item.name for item in manifest.sources]
    if have != need:
        raise InputError(f"the mixture's sources are {', '.join(need)}; got {', '.join(have)}")
    for source, item in zip(sources, manifest.sources, strict=True):
        if source.num_tokens != item.tokens:
            raise VerificationError(
                f"source {source.name} has {source.num_tokens:,} tokens in {source.folder}, the mixture was made with "
                f"{item.tokens:,}; mix again, or restore the tokens"
            )


def _split(source: TokenSource, sequence_length: int, validation_share: float, weighted: bool) -> Split:
    """Training and held-out windows of a source; a share is rounded to whole windows, halves up."""
    total = num_windows(source.num_tokens, sequence_length)
    if weighted and not total:
        raise InputError(
            f"source {source.name} has {source.num_tokens:,} tokens; sequence length {sequence_length} needs at least "
            f"{sequence_length + 1:,}: use a shorter sequence length, more data, or no weight for this source"
        )
    held_out = math.floor(validation_share * total + 0.5)
    if weighted and validation_share > 0 and not 0 < held_out < total:
        raise InputError(
            f"source {source.name} has {total:,} windows of sequence length {sequence_length}; a validation share of "
            f"{validation_share} holds out {held_out:,} of them, and both sides need at least 1: "
            f"change validation_share (0 holds out nothing), or use a shorter sequence length"
        )
    return Split(total - held_out, held_out)
