"""The shards of one tokens dataset: found, checked and mapped when they are needed, on a disk or through a cache.

A mixture of a thousand datasets must open at once, so nothing is read before it is asked for: not even the manifest.
Every file is checked against it when it is opened.
"""

from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tokenmill_core import storage
from tokenmill_core.errors import VerificationError
from tokenmill_core.manifest import FileEntry, InputRef, TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, check_hash, check_identity, check_size, load_manifest
from tokenmill_shards.formats.mmididx import ShardIndex, open_bytes
from tokenmill_shards.formats.places import MASK_SUFFIX, PLACES_SUFFIX, Place, read_hashes, read_place

if TYPE_CHECKING:
    from tokenmill_shards.reading.cache import FileCache

AUTO_HASH_BYTES = 1 << 30
"""`Verify.AUTO` hashes up to this much before the first sample."""
MAX_OPEN_SHARDS = 128
"""Each open shard holds a file descriptor, and a process often has 1,024."""


class Verify(StrEnum):
    """How much of a dataset is checked before it is read. A file is checked for its size whenever it is opened."""

    SIZES = "sizes"
    """The manifests, and the size of every file."""
    FULL = "full"
    """The same, the sha256 of every file, and every shard's index."""
    AUTO = "auto"
    """FULL where that takes seconds (up to 1 GiB), else SIZES, in the background while reading begins."""


class _Entry(NamedTuple):
    """A file of the manifest, in little room: there may be half a million."""

    bytes: int
    sha256: str


class _Contents(NamedTuple):
    """What is kept of a manifest."""

    url: str
    is_local: bool
    shards: tuple[str, ...]
    entries: dict[str, _Entry]
    loss_mask: bool


class ShardStore:
    """The shards of the tokens dataset that `load` gives. Safe to share between threads.

    Errors of all methods: `VerificationError` where a file is not what the manifest says; `ManifestError` where there
    is none. Remote files lie in `cache`; none: the one that `FileCache.open` gives.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], LoadedManifest[TokensManifest]],
        dtype: str,
        *,
        cache: "FileCache | None" = None,
        max_open_shards: int = MAX_OPEN_SHARDS,
    ) -> None:
        self.name = name
        self.load = load
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self._cache = cache
        self._lock = Lock()
        self._known: _Contents | None = None
        # Caches that drop the least recently used: a map lives on while somebody reads it.
        self.tokens = lru_cache(max_open_shards)(self._map_tokens)
        self.mask = lru_cache(max_open_shards)(self._map_mask)
        self.index = lru_cache(max_open_shards)(self._open_index)

    @classmethod
    def open(cls, path: str, name: str | None = None, *, cache: "FileCache | None" = None) -> Self:
        """The dataset whose manifest lies at `path` (a folder, a JSON file, or its URL)."""
        loaded = load_manifest(path, TokensManifest)
        return cls(name or loaded.manifest.name, lambda: loaded, loaded.manifest.dtype, cache=cache)

    @classmethod
    def of_input(
        cls,
        name: str,
        url: str,
        ref: InputRef,
        by: str,
        dtype: str,
        *,
        cache: "FileCache | None" = None,
        max_open_shards: int = MAX_OPEN_SHARDS,
    ) -> Self:
        """The dataset at `url` that manifest `by` names as `ref`: refused, once it is read, if it is another one."""

        def load() -> LoadedManifest[TokensManifest]:
            return check_identity(load_manifest(url, TokensManifest), ref, by)

        return cls(name, load, dtype, cache=cache, max_open_shards=max_open_shards)

    def places(self, number: int) -> Path:
        """The file that says where each document of shard `number` came from (`formats.places`)."""
        return self._path(self._shard(number) + PLACES_SUFFIX)

    def hashes(self, number: int) -> NDArray[np.uint64]:
        """The hash of each document of shard `number`, (documents,)."""
        return read_hashes(self.places(number))

    def place(self, number: int, document: int) -> Place:
        """Where document `document` of shard `number` came from."""
        return read_place(self.places(number), document)

    def shard_name(self, number: int) -> str:
        """The name of shard `number`."""
        return self._shard(number)

    def check(self, verify: Verify) -> tuple[int, ...]:
        """Check all files now: their sizes, or with `FULL` their content too; the tokens of each shard.

        Keeps nothing of what it reads.
        """
        loaded = self.load()
        remote = not storage.is_local(loaded.url)
        for entry in loaded.manifest.files:
            if remote and verify is Verify.FULL:
                self._path(entry.path)  # hashed as it arrives in the cache
                continue
            check_size(loaded, entry)
            if verify is Verify.FULL:
                check_hash(loaded, entry)
        for number in range(len(loaded.manifest.shards) if verify is Verify.FULL else 0):
            self.index(number)
        return shard_tokens(loaded.manifest)

    def _map_tokens(self, number: int) -> NDArray[Any]:
        """The tokens of shard `number`, mapped."""
        name = self._shard(number)
        size = self._entry(f"{name}.bin").bytes
        if size % self.dtype.itemsize:
            raise VerificationError(
                f"{self._contents.url} gives {name}.bin {size:,} bytes, which are no whole tokens of "
                f"{self.dtype.name}; build it again"
            )
        return open_bytes(self._path(f"{name}.bin")).view(self.dtype)

    def _map_mask(self, number: int) -> NDArray[np.uint8] | None:
        """The loss mask of shard `number`, a byte a token; none where every token counts."""
        if not self._contents.loss_mask:
            return None
        mask = open_bytes(self._path(self._shard(number) + MASK_SUFFIX))
        if mask.size != self.tokens(number).size:
            raise VerificationError(
                f"{self._contents.url}: {self._shard(number)} has {self.tokens(number).size:,} tokens and a loss mask "
                f"of {mask.size:,}; tokenize again"
            )
        return mask

    def _open_index(self, number: int) -> ShardIndex:
        """Where the documents of shard `number` lie."""
        name = self._shard(number)
        index, size = ShardIndex(self._path(f"{name}.idx")), self._entry(f"{name}.bin").bytes
        if index.dtype != self.dtype or index.num_tokens * self.dtype.itemsize != size:
            raise VerificationError(
                f"{index.path} has {index.num_tokens:,} tokens of {index.dtype.name}, but {name}.bin needs "
                f"{size // self.dtype.itemsize:,} of {self.dtype.name}; restore it or tokenize again"
            )
        return index

    def _shard(self, number: int) -> str:
        shards = self._contents.shards
        if not 0 <= number < len(shards):
            raise VerificationError(f"{self._contents.url} has {len(shards)} shards, there is no number {number}")
        return shards[number]

    @property
    def _contents(self) -> _Contents:
        if self._known is None:
            with self._lock:
                if self._known is None:
                    self._known = _contents_of(self.load())
        return self._known

    def _entry(self, path: str) -> _Entry:
        entry = self._contents.entries.get(path)
        if entry is None:
            raise VerificationError(
                f"{self._contents.url}: the manifest names a shard but not its file {path}; build it again"
            )
        return entry

    def _path(self, relative: str) -> Path:
        """Where file `relative` lies on this machine, its size checked."""
        contents, entry = self._contents, self._entry(relative)
        url = storage.inside(storage.parent(contents.url), relative)
        if not contents.is_local:
            return self._fetch(url, relative, entry)
        path = storage.local_path(url)
        try:
            have = path.stat().st_size
        except FileNotFoundError:
            raise VerificationError(
                f"{path} is missing, but {contents.url} lists it; restore it or tokenize again"
            ) from None
        if have != entry.bytes:
            raise VerificationError(
                f"{path} has {have:,} bytes, but {contents.url} needs {entry.bytes:,}; restore it or tokenize again"
            )
        return path

    def _fetch(self, url: str, relative: str, entry: _Entry) -> Path:
        if self._cache is None:
            from tokenmill_shards.reading.cache import FileCache

            self._cache = FileCache.open()
        return self._cache.path(url, FileEntry(path=relative, bytes=entry.bytes, sha256=entry.sha256))


def settle(verify: Verify, num_bytes: int) -> Verify:
    """`verify`, with AUTO made FULL where there are few enough bytes."""
    return Verify.FULL if verify is Verify.AUTO and num_bytes <= AUTO_HASH_BYTES else verify


def shard_tokens(manifest: TokensManifest) -> tuple[int, ...]:
    """Tokens of each shard of a dataset, by the sizes of its files."""
    sizes, itemsize = {entry.path: entry.bytes for entry in manifest.files}, np.dtype(manifest.dtype).itemsize
    return tuple(sizes.get(f"{shard}.bin", 0) // itemsize for shard in manifest.shards)


def _contents_of(loaded: LoadedManifest[TokensManifest]) -> _Contents:
    manifest = loaded.manifest
    return _Contents(
        url=loaded.url,
        is_local=storage.is_local(loaded.url),
        shards=manifest.shards,
        entries={entry.path: _Entry(entry.bytes, entry.sha256) for entry in manifest.files},
        loss_mask=manifest.loss_mask,
    )
