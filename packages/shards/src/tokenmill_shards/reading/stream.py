"""The documents of one source as one stream of tokens, its shards one after another.

    shard 0            shard 1
    a b B c            d D e          documents; those held out in capitals
    ─────────────────────────────
    a b c d e                         the training stream
    B D                               the held-out stream

Where a mixture holds nothing out, the training stream is the shards as they lie on disk and costs no look-up.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.errors import VerificationError
from tokenmill_core.mixture_manifest import MixtureSource
from tokenmill_shards.formats.mmididx import sequence_offsets
from tokenmill_shards.formats.places import Place, is_held_out
from tokenmill_shards.reading.store import ShardStore, shard_tokens

SHARDS_INDEXED = 64
"""Shards of a stream whose documents are kept in memory."""


class ShardDocuments(NamedTuple):
    """The n documents with tokens that a stream takes from one shard."""

    offsets: NDArray[np.int64]
    """Where each begins in the stream, counted from the shard's begin there, and the end: (n + 1,)."""
    numbers: NDArray[np.int64]
    """Number of each in the shard, (n,)."""
    physical: NDArray[np.int64]
    """First token of each in the shard, (n,)."""
    run_offsets: NDArray[np.int64]
    """Where each run of documents that lie side by side in the shard begins in the stream, and the end."""
    run_physical: NDArray[np.int64]
    """First token of each run in the shard."""


class Piece(NamedTuple):
    """A document as it lies in a stream: tokens `first` to `stop`, exclusive."""

    shard: int
    document: int
    """Number in the shard."""
    first: int
    stop: int


class TokenStream:
    """The tokens of one source that training reads, or those it holds out. Safe to share between threads.

    `kept_tokens` of each shard belong to it. `share`: documents with a hash below that part of all hashes are held out;
    none: nothing is.
    """

    def __init__(
        self, store: ShardStore, kept_tokens: Sequence[int], share: float | None = None, *, held_out: bool = False
    ) -> None:
        self.name = store.name
        self.store = store
        self.shard_offsets = sequence_offsets(kept_tokens)
        """Where each shard begins in the stream, and the end: (shards + 1,)."""
        self.num_tokens = int(self.shard_offsets[-1])
        self._ends: list[int] = self.shard_offsets[1:].tolist()
        self._share = share
        self._held_out = held_out
        self._tokens = store.tokens
        self.documents = lru_cache(SHARDS_INDEXED)(self._documents)

    @classmethod
    def training(cls, store: ShardStore, source: MixtureSource, share: float) -> Self:
        """What `source` gives to training."""
        if not any(source.held_out_tokens):
            return cls(store, source.shard_tokens)
        pairs = zip(source.shard_tokens, source.held_out_tokens, strict=True)
        return cls(store, [tokens - held_out for tokens, held_out in pairs], share)

    @classmethod
    def held_out(cls, store: ShardStore, source: MixtureSource, share: float) -> Self:
        """What `source` keeps from training."""
        return cls(store, source.held_out_tokens or [0] * len(source.shard_tokens), share, held_out=True)

    @classmethod
    def whole(cls, store: ShardStore) -> Self:
        """All of a dataset."""
        return cls(store, shard_tokens(store.load().manifest))

    def read_into(self, row: NDArray[Any], start: int) -> None:
        """Fill `row` (any integer type that holds the ids) with the tokens from `start`; it may cross shards."""
        stop = start + row.size
        shard = bisect_right(self._ends, start)
        # By far the most frequent: one piece, no look-up.
        if self._share is None and start >= 0 and shard < len(self._ends) and stop <= self._ends[shard]:
            offset = start - (self._ends[shard - 1] if shard else 0)
            row[:] = self._tokens(shard)[offset : offset + row.size]
            return
        if start < 0 or stop > self.num_tokens:
            raise IndexError(f"{self.name}: tokens {start} to {stop} of {self.num_tokens}")
        for number, place, first, size in self._copies(start, stop):
            row[place : place + size] = self._tokens(number)[first : first + size]

    def mask_into(self, row: NDArray[np.uint8], start: int) -> None:
        """Fill `row` with the loss mask of the tokens from `start`: 1 where one counts."""
        for shard, place, first, size in self._copies(start, start + row.size):
            mask = self.store.mask(shard)
            row[place : place + size] = 1 if mask is None else mask[first : first + size]

    def starts(self, start: int, stop: int) -> NDArray[np.int64]:
        """Where documents begin in [start, stop), as stream offsets, rising."""
        found = []
        for shard, base in self._shards(start, stop):
            begins = self.documents(shard).offsets[:-1]
            first, last = np.searchsorted(begins, (start - base, stop - base))
            found.append(begins[first:last] + base)
        return np.concatenate([np.zeros(0, np.int64), *found])

    def overlapping(self, start: int, stop: int) -> list[Piece]:
        """The documents that have a token in [start, stop), whole."""
        pieces = []
        for shard, base in self._shards(start, stop):
            documents = self.documents(shard)
            first = max(0, int(np.searchsorted(documents.offsets, start - base, "right")) - 1)
            last = int(np.searchsorted(documents.offsets[:-1], stop - base))
            bounds = (documents.offsets[first : last + 1] + base).tolist()
            numbers = documents.numbers[first:last].tolist()
            pieces += [Piece(shard, *row) for row in zip(numbers, bounds, bounds[1:], strict=False)]
        return pieces

    def place(self, shard: int, document: int) -> Place:
        """Where document `document` of shard `shard` came from."""
        return self.store.place(shard, document)

    def _shards(self, start: int, stop: int) -> list[tuple[int, int]]:
        """(shard, where it begins in the stream) of each shard with a token in [start, stop)."""
        first, last = bisect_right(self._ends, start), bisect_right(self._ends, stop - 1)
        return [(shard, int(self.shard_offsets[shard])) for shard in range(first, last + 1)]

    def _copies(self, start: int, stop: int) -> list[tuple[int, int, int, int]]:
        """(shard, place in the row, first token in the shard, tokens) of each piece that makes up [start, stop)."""
        copies = []
        for shard, base in self._shards(start, stop):
            first, last = max(start - base, 0), min(stop, self._ends[shard]) - base
            if self._share is None and first < last:
                copies.append((shard, first + base - start, first, last - first))
            elif first < last:
                runs = _runs(self.documents(shard), first, last)
                copies += [(shard, begin + base - start, at, size) for begin, at, size in runs]
        return copies

    def _documents(self, shard: int) -> ShardDocuments:
        """The documents of this stream in shard number `shard`."""
        index = self.store.index(shard)
        lengths = np.diff(index.document_offsets)
        kept = lengths > 0
        if self._share is not None:
            kept &= is_held_out(self.store.hashes(shard), self._share) == self._held_out
        numbers = np.flatnonzero(kept)
        offsets, physical = sequence_offsets(lengths[numbers]), index.document_offsets[numbers]
        need = int(self.shard_offsets[shard + 1] - self.shard_offsets[shard])
        if offsets[-1] != need:
            hashes = "" if self._share is None else f", chosen by the hashes in {self.store.places(shard)},"
            raise VerificationError(
                f"{index.path}: its documents{hashes} give {self.name} {offsets[-1]:,} tokens, but the mixture was "
                f"made with {need:,}: `prep verify` says which file is damaged; restore it, or mix again"
            )
        jumps = np.flatnonzero(physical[1:] != physical[:-1] + lengths[numbers[:-1]]) + 1
        runs = np.concatenate([np.zeros(min(1, numbers.size), np.int64), jumps])
        return ShardDocuments(offsets, numbers, physical, np.append(offsets[runs], offsets[-1]), physical[runs])


def _runs(documents: ShardDocuments, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """(place in the stream, first token in the shard, tokens) of each run that makes up [first, last) of a shard."""
    offsets, physical = documents.run_offsets, documents.run_physical
    run = int(np.searchsorted(offsets, first, "right")) - 1
    while first < last:
        end = min(last, int(offsets[run + 1]))
        yield first, int(physical[run]) + first - int(offsets[run]), end - first
        first, run = end, run + 1
