"""A packed dataset as samples by global index: sample i is sequence i, read as it lies there.

index ─▶ shard, row ─▶ L + 1 tokens, its pieces ─▶ what counts, where documents begin ─▶ Samples
"""

from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tokenmill_core import storage
from tokenmill_core.errors import InputError, TokenmillError, VerificationError
from tokenmill_core.manifest import FileEntry, SourceUse
from tokenmill_core.manifest_io import LoadedManifest, check_sizes, load_input, load_manifest, verify_files
from tokenmill_core.mixture_manifest import MixtureManifest, PackedManifest
from tokenmill_shards.formats.mmididx import open_bytes, sequence_offsets
from tokenmill_shards.formats.places import MASK_SUFFIX
from tokenmill_shards.packing.account import labels_of_sources
from tokenmill_shards.packing.pieces import PADDING, PIECES_SUFFIX, Pieces, ramps, read_pieces
from tokenmill_shards.reading.cache import FileCache
from tokenmill_shards.reading.samples import Samples, apart
from tokenmill_shards.reading.store import ShardStore, Verify, settle

SHARDS_OPEN = 16
"""Shards whose pieces are kept in memory."""


class _Shard(NamedTuple):
    """A shard of S sequences, open."""

    tokens: NDArray[Any]
    """(S, L + 1), mapped."""
    mask: NDArray[np.uint8] | None
    """(S, L + 1), mapped."""
    pieces: Pieces
    starts: NDArray[np.int64]
    """(P,) Where each piece begins in its sequence."""
    first_pieces: NDArray[np.int64]
    """(S + 1,) First piece of each sequence."""


class PackedReader:
    """Reads the samples of a packed dataset. Safe to share between threads.

    `documents`: keep documents apart, for attention that does not cross from one into the next.

    Raises VerificationError where files are not what the manifest says.
    """

    def __init__(
        self, loaded: LoadedManifest[PackedManifest], *, documents: bool = False, cache: FileCache | None = None
    ) -> None:
        self.manifest = loaded.manifest
        self._loaded = loaded
        self._documents = documents
        self._cache = cache
        self._entries = {entry.path: entry for entry in self.manifest.files}
        self._offsets = sequence_offsets(self.manifest.shard_samples)
        self._width = self.manifest.sequence_length + 1
        self._shard = lru_cache(SHARDS_OPEN)(self._open_shard)

    @classmethod
    def open(
        cls,
        path: str,
        *,
        verify: Verify | str = Verify.AUTO,
        documents: bool = False,
        cache: FileCache | None = None,
    ) -> Self:
        """The packed dataset at `path` (a folder, its manifest, or its URL)."""
        loaded = load_manifest(path, PackedManifest)
        if settle(Verify(verify), sum(entry.bytes for entry in loaded.manifest.files)) is Verify.FULL:
            verify_files(loaded)
        else:
            check_sizes(loaded)
        return cls(loaded, documents=documents, cache=cache)

    @property
    def sequence_length(self) -> int:
        """L."""
        return self.manifest.sequence_length

    @property
    def num_samples(self) -> int:
        """Sequences in the dataset."""
        return self.manifest.num_samples

    @property
    def source_names(self) -> tuple[str, ...]:
        """The sources that were packed, in the order in which samples number them."""
        return self.manifest.sources

    def samples(self, indices: NDArray[np.int64]) -> Samples:
        """The samples `indices` (B,), in any order.

        Errors: `InputError` where one is not below `num_samples`.
        """
        indices = np.asarray(indices, np.int64)
        if indices.size:
            self._refuse_beyond(int(indices.max()) + 1)
        tokens = np.empty((indices.size, self._width), np.int64)
        counted = np.ones(tokens.shape, np.uint8)
        begins = np.zeros(tokens.shape, np.bool_)
        is_whole = self.manifest.method == "concat"  # each sequence is of one source
        sources = np.empty(indices.size if is_whole else (indices.size, self.sequence_length), np.int32)
        for number, places in self._by_shard(indices):
            shard, rows = self._shard(number), indices[places] - self._offsets[number]
            self._read(shard, rows, places, tokens, counted, begins)
            sources[places] = self._sources(shard, rows)
        if self._documents:
            return apart(tokens, counted, begins)._replace(sources=sources)
        if is_whole and not self.manifest.loss_mask:
            return Samples(tokens, sources=sources)
        return Samples(tokens, counted[:, 1:].astype(np.bool_), sources=sources)

    def use(self, num_samples: int) -> tuple[SourceUse, ...]:
        """What the first `num_samples` draw from each source: the labels it gives, whether a loss mask counts them.

        With `best-fit` a sequence holds documents of several sources: `samples` is then none.
        """
        self._refuse_beyond(num_samples)
        number = int(np.searchsorted(self._offsets, num_samples, "right")) - 1
        sources, epochs = self.manifest.sources, self.manifest.epoch_tokens
        tokens = np.array(self.manifest.shard_source_tokens[:number], np.int64).reshape(-1, len(sources)).sum(0)
        rest = num_samples - int(self._offsets[number])
        if rest:
            pieces = self._shard(number).pieces
            tokens = tokens + labels_of_sources(pieces.take(pieces.sequence < rest), len(sources))
        whole = self.manifest.method == "concat"  # each sequence is of one source
        return tuple(
            SourceUse(
                name=name,
                samples=labels // self.sequence_length if whole else None,
                tokens=labels,
                epochs=labels / max(1, epoch),
            )
            for name, labels, epoch in zip(sources, tokens.tolist(), epochs, strict=True)
        )

    def pieces(self, index: int) -> Pieces:
        """The pieces of documents in sample `index`, in order, without the padding."""
        self._refuse_beyond(index + 1)
        number = int(np.searchsorted(self._offsets, index, "right")) - 1
        shard, row = self._shard(number), index - int(self._offsets[number])
        pieces = shard.pieces.take(np.arange(shard.first_pieces[row], shard.first_pieces[row + 1]))
        return pieces.take(pieces.source != PADDING)

    def shard_pieces(self, number: int) -> Pieces:
        """The pieces of shard `number`, padding among them; sequences are counted from the shard's first."""
        return self._shard(number).pieces

    @cached_property
    def mixture(self) -> LoadedManifest[MixtureManifest] | None:
        """The mixture that was packed, or none where it does not lie where it did."""
        try:
            loaded = load_input(self._loaded, 0)
        except TokenmillError:
            return None
        assert isinstance(loaded.manifest, MixtureManifest)
        return LoadedManifest(loaded.url, loaded.manifest)

    @cached_property
    def stores(self) -> tuple[ShardStore, ...] | None:
        """The token datasets of all sources, or none where there is no `mixture`."""
        mixture = self.mixture
        if mixture is None:
            return None
        return tuple(
            ShardStore.of_input(
                source.name,
                mixture.input_url(source.input),
                mixture.manifest.inputs[source.input],
                mixture.url,
                mixture.manifest.dtype,
                cache=self._cache,
            )
            for source in mixture.manifest.sources
        )

    def _read(
        self,
        shard: _Shard,
        rows: NDArray[np.int64],
        places: NDArray[np.int64],
        tokens: NDArray[np.int64],
        counted: NDArray[np.uint8],
        begins: NDArray[np.bool_],
    ) -> None:
        """Fill the rows `places` of a batch with the sequences `rows` of a shard."""
        tokens[places] = shard.tokens[rows]
        if shard.mask is not None:
            counted[places] = shard.mask[rows]
        first = shard.first_pieces[rows]
        row, number = ramps(shard.first_pieces[rows + 1] - first)
        piece = first[row] + number
        start, is_padding = shard.starts[piece], shard.pieces.source[piece] == PADDING
        begins[places[row], start] = True
        # A document that goes on in another sequence begins with a token that is a label in the one before.
        counted[places[row], start] &= shard.pieces.first_token[piece] == 0
        for place, at in zip(places[row[is_padding]].tolist(), start[is_padding].tolist(), strict=True):
            counted[place, at:] = 0

    def _sources(self, shard: _Shard, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of the sequences `rows` of a shard, or of each of their labels: see `Samples.sources`."""
        first = shard.first_pieces[rows]
        if self.manifest.method == "concat":
            return shard.pieces.source[first]
        row, number = ramps(shard.first_pieces[rows + 1] - first)
        piece = first[row] + number
        of_tokens = np.repeat(np.maximum(shard.pieces.source[piece], 0), shard.pieces.num_tokens[piece])
        return of_tokens.reshape(-1, self._width)[:, 1:]

    def _by_shard(self, indices: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """(shard, places in `indices`) of each shard that is asked for."""
        shard = np.searchsorted(self._offsets, indices, "right") - 1
        for number in np.unique(shard).tolist():
            yield number, np.flatnonzero(shard == number)

    def _refuse_beyond(self, num_samples: int) -> None:
        if num_samples > self.num_samples:
            raise InputError(
                f"{self._loaded.url} has {self.num_samples:,} sequences, but {num_samples:,} are needed: train on "
                "fewer tokens, or pack more with --tokens"
            )

    def _open_shard(self, number: int) -> _Shard:
        name, samples = self.manifest.shards[number], self.manifest.shard_samples[number]
        tokens = open_bytes(self._path(f"{name}.bin")).view(np.dtype(self.manifest.dtype).newbyteorder("<"))
        pieces = read_pieces(self._path(name + PIECES_SUFFIX), self._width)
        if tokens.size != samples * self._width or pieces.num_tokens.sum() != tokens.size:
            raise VerificationError(
                f"{self._loaded.url}: shard {name} has {tokens.size:,} tokens in {pieces.num_tokens.sum():,} of "
                f"pieces, but needs {samples * self._width:,} for {samples:,} sequences; pack again"
            )
        mask = None
        if self.manifest.loss_mask:
            mask = open_bytes(self._path(name + MASK_SUFFIX)).reshape(samples, self._width)
        starts = np.cumsum(pieces.num_tokens) - pieces.num_tokens - pieces.sequence * self._width
        first_pieces = np.searchsorted(pieces.sequence, np.arange(samples + 1))
        self._fetch_ahead(number + 1)
        return _Shard(tokens.reshape(samples, self._width), mask, pieces, starts, first_pieces)

    def _fetch_ahead(self, number: int) -> None:
        """Begin to fetch shard `number`, if there is one and it lies elsewhere: they are read one after another."""
        if number >= len(self.manifest.shards) or storage.is_local(self._loaded.url):
            return
        for suffix in (".bin", PIECES_SUFFIX, *((MASK_SUFFIX,) if self.manifest.loss_mask else ())):
            entry = self._entry(self.manifest.shards[number] + suffix)
            self._files.prefetch(self._loaded.file_url(entry.path), entry)

    def _path(self, relative: str) -> Path:
        entry = self._entry(relative)
        url = self._loaded.file_url(relative)
        return storage.local_path(url) if storage.is_local(url) else self._files.path(url, entry)

    def _entry(self, relative: str) -> FileEntry:
        if relative not in self._entries:
            raise VerificationError(f"{self._loaded.url}: names a shard but not its file {relative}; pack again")
        return self._entries[relative]

    @cached_property
    def _files(self) -> FileCache:
        """Where copies of remote files lie."""
        return self._cache or FileCache.open()
