"""A mixture as samples by global index: any batch of any epoch is read alike by any rank, thread or later run.

    index ─ Mixture ─▶ source, epoch, window ─ TokenStream ─▶ L + 1 tokens ─ fill in the middle ─▶ Samples

Nothing is stored and nothing is walked. A mixture too large to hash opens at once: the shards' manifests are read as
they are needed, and a thread checks all files meanwhile; what it finds is raised by the next batch.
"""

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from threading import Thread
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.errors import InputError, TokenmillError, VerificationError
from tokenmill_core.manifest import SourceUse
from tokenmill_core.manifest_io import load_manifest
from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_shards.mixture import Located, Mixture
from tokenmill_shards.reading.fim import FillInTheMiddle
from tokenmill_shards.reading.samples import Samples, apart
from tokenmill_shards.reading.store import ShardStore, Verify, settle
from tokenmill_shards.reading.stream import TokenStream

if TYPE_CHECKING:
    from tokenmill_shards.reading.cache import FileCache

_LOG = logging.getLogger("tokenmill")

OPEN_SHARDS = 512
"""Shards that all sources of a mixture together keep mapped."""
LOCATED_TOGETHER = 512
"""Samples whose places are computed at once: a small batch takes longer to ask for than to answer."""
BLOCKS_KEPT = 8


class MixtureReader:
    """Reads the samples of a mixture. Safe to share between threads.

    `documents`: keep documents apart, for attention that does not cross from one into the next.

    Raises InputError where a source is too short for the sequence length, and VerificationError where a source is not
    the one that was mixed; `samples` raises the latter too.
    """

    def __init__(
        self, manifest: MixtureManifest, stores: Sequence[ShardStore], sequence_length: int, *, documents: bool = False
    ) -> None:
        self.manifest = manifest
        self.mixture = Mixture(manifest, sequence_length)
        share = manifest.validation_share
        pairs = list(zip(stores, manifest.sources, strict=True))
        self.training = tuple(TokenStream.training(store, source, share) for store, source in pairs)
        """What training reads of each source."""
        self.held_out = tuple(TokenStream.held_out(store, source, share) for store, source in pairs)
        """What it never sees."""
        self._documents = documents
        self._masked = [source.loss_mask for source in manifest.sources]
        self._fim = FillInTheMiddle.of(manifest)
        self._is_plain = not (documents or self._fim or any(self._masked))
        self._block = lru_cache(BLOCKS_KEPT)(self._locate_block)
        self._problem: TokenmillError | OSError | None = None
        self._checking: Thread | None = None

    @classmethod
    def open(
        cls,
        path: str,
        sequence_length: int,
        *,
        verify: Verify | str = Verify.AUTO,
        documents: bool = False,
        cache: "FileCache | None" = None,
    ) -> Self:
        """The mixture at `path` (a folder, a JSON file or its URL), its sources found by the paths it names."""
        loaded = load_manifest(path, MixtureManifest)
        manifest, limit = loaded.manifest, max(2, OPEN_SHARDS // len(loaded.manifest.sources))
        stores = [
            ShardStore.of_input(
                source.name,
                loaded.input_url(source.input),
                manifest.inputs[source.input],
                loaded.url,
                manifest.dtype,
                cache=cache,
                max_open_shards=limit,
            )
            for source in manifest.sources
        ]
        reader = cls(manifest, stores, sequence_length, documents=documents)
        reader._check(stores, Verify(verify))
        return reader

    @property
    def sequence_length(self) -> int:
        """L."""
        return self.mixture.sequence_length

    @property
    def num_samples(self) -> int | None:
        """None: a mixture goes on, epoch after epoch."""
        return None

    @property
    def source_names(self) -> tuple[str, ...]:
        """The mixture's sources, in the order in which samples number them."""
        return tuple(source.name for source in self.manifest.sources)

    def samples(self, indices: NDArray[np.int64]) -> Samples:
        """The samples `indices` (B,), in any order."""
        if self._problem is not None:
            raise self._problem
        sources, _, windows = self._locate(indices)
        tokens = np.empty((indices.size, self.sequence_length + 1), np.int64)
        rows = list(zip(sources.tolist(), (windows * self.sequence_length).tolist(), strict=True))
        for row, (source, start) in zip(tokens, rows, strict=True):
            self.training[source].read_into(row, start)
        if self._is_plain:
            return Samples(tokens, sources=sources.copy())  # not a view of the places that are kept
        return self._finish(tokens, [(self.training[source], source, start) for source, start in rows], indices)

    def use(self, num_samples: int) -> tuple[SourceUse, ...]:
        """What the first `num_samples` draw from each source."""
        return self.mixture.use(num_samples)

    def num_validation(self, name: str) -> int:
        """Held-out samples of source `name`; the last may be filled up with labels that do not count."""
        return max(0, -(-(self.held_out[self._number(name)].num_tokens - 1) // self.sequence_length))

    def validation(self, name: str, numbers: Iterable[int] | None = None) -> Samples:
        """Held-out samples of source `name`: those of these `numbers`, each below `num_validation`; all if not said."""
        number = self._number(name)
        stream = self.held_out[number]
        wanted = range(self.num_validation(name)) if numbers is None else numbers
        rows = [(stream, number, i * self.sequence_length) for i in wanted]
        tokens = np.zeros((len(rows), self.sequence_length + 1), np.int64)
        for row, (_, _, start) in zip(tokens, rows, strict=True):
            stream.read_into(row[: stream.num_tokens - start], start)
        return self._finish(tokens, rows, None)

    def _finish(
        self, tokens: NDArray[np.int64], rows: list[tuple[TokenStream, int, int]], indices: NDArray[np.int64] | None
    ) -> Samples:
        """Add to the `tokens` of (stream, source, start) each what depends on masks and on where documents begin.

        `indices`: global ones, none where the samples are not for training.
        """
        counted = np.ones(tokens.shape, np.uint8)
        begins = np.zeros(tokens.shape, np.bool_)
        for number, (stream, source, start) in enumerate(rows):
            size = min(tokens.shape[1], stream.num_tokens - start)
            counted[number, size:] = 0
            if self._masked[source]:
                stream.mask_into(counted[number, :size], start)
            if not (self._documents or self._fim):
                continue
            places = stream.starts(start, start + size) - start
            if self._fim and indices is not None:
                self._fim.rearrange(tokens[number, :size], counted[number, :size], places, source, int(indices[number]))
            begins[number, places] = True
        sources = np.array([source for _, source, _ in rows], np.int32)
        if self._documents:
            return apart(tokens, counted, begins)._replace(sources=sources)
        return Samples(tokens, counted[:, 1:].astype(np.bool_), sources=sources)

    def _locate(self, indices: NDArray[np.int64]) -> Located:
        """`Mixture.locate`, from places computed together where the indices follow one another."""
        if not indices.size or indices.size >= LOCATED_TOGETHER:
            return self.mixture.locate(indices)
        number, first = divmod(int(indices[0]), LOCATED_TOGETHER)
        last = first + indices.size
        if last > LOCATED_TOGETHER or int(indices[-1]) - int(indices[0]) != indices.size - 1 or not _rising(indices):
            return self.mixture.locate(indices)
        block = self._block(number)
        return Located(block.source[first:last], block.epoch[first:last], block.window[first:last])

    def _locate_block(self, number: int) -> Located:
        first = number * LOCATED_TOGETHER
        return self.mixture.locate(np.arange(first, first + LOCATED_TOGETHER, dtype=np.int64))

    def _number(self, name: str) -> int:
        names = self.source_names
        if name not in names:
            raise InputError(f"the mixture has no source {name!r}; it has {', '.join(names)}")
        return names.index(name)

    def _check(self, stores: Sequence[ShardStore], verify: Verify) -> None:
        """Check all files: at once, or in the background where that would keep a large mixture waiting."""
        itemsize = np.dtype(self.manifest.dtype).itemsize
        verify = settle(verify, itemsize * sum(source.tokens for source in self.manifest.sources))
        if verify is not Verify.AUTO:
            self._check_now(stores, verify)
            return
        self._checking = Thread(target=self._check_behind, args=(stores,), name="tokenmill-check", daemon=True)
        self._checking.start()

    @property
    def is_checking(self) -> bool:
        """Whether files are being checked in the background."""
        return self._checking is not None and self._checking.is_alive()

    def finish_check(self) -> None:
        """Wait for the check in the background, if there is one: a run that ends before it knows nothing of its files.

        Errors: what the check has found.
        """
        if self._checking is not None:
            self._checking.join()
        if self._problem is not None:
            raise self._problem

    def _check_now(self, stores: Sequence[ShardStore], verify: Verify) -> None:
        for store, source in zip(stores, self.manifest.sources, strict=True):
            have, need = store.check(verify), source.shard_tokens
            if have != need:
                raise VerificationError(
                    f"source {source.name} has {sum(have):,} tokens in {len(have):,} shards, the mixture was made with "
                    f"{sum(need):,} in {len(need):,}; mix again, or restore the tokens"
                )

    def _check_behind(self, stores: Sequence[ShardStore]) -> None:
        try:
            self._check_now(stores, Verify.SIZES)
        except Exception as error:  # whatever it is: a check that broke off has not found everything in order
            problem = (
                error
                if isinstance(error, TokenmillError | OSError)
                else VerificationError(
                    f"the check of all files broke off: {type(error).__name__}: {error}; `prep verify` looks again"
                )
            )
            _LOG.error("%s", problem)
            self._problem = problem


def _rising(indices: NDArray[np.int64]) -> bool:
    return bool((indices[1:] > indices[:-1]).all())
