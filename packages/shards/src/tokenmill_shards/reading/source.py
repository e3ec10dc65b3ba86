"""A tokens dataset as one stream of tokens, its shards one after another, memory-mapped as they are needed."""

import os
import stat
from bisect import bisect_right
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tokenmill_core import storage
from tokenmill_core.errors import InputError, VerificationError
from tokenmill_core.manifest import FileEntry, TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, check_hash, load_manifest
from tokenmill_shards.formats.mmididx import Shard, sequence_offsets
from tokenmill_shards.formats.places import PLACES_SUFFIX, read_place

AUTO_HASH_BYTES = 1 << 30
"""`Verify.AUTO` hashes up to this much."""
MAX_OPEN_SHARDS = 128
"""Each open shard holds a file descriptor, and a process often has 1,024."""


class Verify(StrEnum):
    """How much of a dataset is checked before it is read."""

    SIZES = "sizes"
    """The size of every file."""
    FULL = "full"
    """Sizes, the sha256 of every file, and every shard's index."""
    AUTO = "auto"
    """FULL where that takes seconds (up to 1 GiB), else SIZES."""


def settle(verify: Verify, files: Sequence[FileEntry]) -> Verify:
    """`verify` with AUTO settled by the size of all `files` together."""
    if verify is not Verify.AUTO:
        return verify
    return Verify.FULL if sum(entry.bytes for entry in files) <= AUTO_HASH_BYTES else Verify.SIZES


class DocumentPlace(NamedTuple):
    """Where a document came from."""

    shard: str
    document: int
    """Number within the shard, from 0."""
    file: str
    """Name of the raw file."""
    row: int
    """1-based row or line in the raw file."""
    id: str | None
    """The user's own id."""
    first_token: int
    """Offset of its first token in the source's stream."""
    num_tokens: int


class TokenSource:
    """The tokens of one dataset, offset 0 to `num_tokens`. Safe to share between threads.

    The sizes of all files are checked here; a file that differs from the manifest is a VerificationError.
    """

    def __init__(
        self,
        name: str,
        tokens: LoadedManifest[TokensManifest],
        *,
        verify: Verify = Verify.SIZES,
        max_open_shards: int = MAX_OPEN_SHARDS,
    ) -> None:
        if not storage.is_local(tokens.url):
            raise InputError(f"{name}: tokens are read from local disks only, got {tokens.url}; copy the folder here")
        self.name = name
        self.manifest = tokens.manifest
        self.folder = storage.local_path(tokens.folder)
        self._loaded = tokens
        self.dtype = np.dtype(self.manifest.dtype).newbyteorder("<")
        self._entries = {entry.path: entry for entry in self.manifest.files}
        self._offsets = sequence_offsets([self._shard_tokens(shard) for shard in self.manifest.shards])
        self._ends: list[int] = self._offsets[1:].tolist()
        # Caches that drop the least recently used: a map lives on while somebody reads it.
        self._tokens = lru_cache(max_open_shards)(self._map)
        self._index = lru_cache(max_open_shards)(self._open_index)
        self._check_files(verify)

    @classmethod
    def open(cls, path: str, name: str | None = None, *, verify: Verify = Verify.SIZES) -> Self:
        """The dataset whose manifest lies at `path` (a folder or a JSON file)."""
        tokens = load_manifest(path, TokensManifest)
        return cls(name or tokens.manifest.name, tokens, verify=verify)

    @property
    def num_tokens(self) -> int:
        """Tokens in all shards."""
        return int(self._offsets[-1])

    def read(self, starts: NDArray[np.int64], length: int) -> NDArray[Any]:
        """Windows of `length` tokens from the offsets `starts` (B,): shape (B, length), in the dataset's own type."""
        windows = np.empty((len(starts), length), self.dtype)
        for window, start in zip(windows, starts.tolist(), strict=True):
            self.read_into(window, start)
        return windows

    def read_into(self, window: NDArray[Any], start: int) -> None:
        """Fill `window` (any integer type that holds the ids) with the tokens from `start`; it may cross shards."""
        if start < 0 or start + window.size > self.num_tokens:
            raise IndexError(f"{self.name}: tokens {start} to {start + window.size} of {self.num_tokens}")
        shard, done = bisect_right(self._ends, start), 0
        while done < window.size:
            offset = start + done - (self._ends[shard - 1] if shard else 0)
            piece = self._tokens(shard)[offset : offset + window.size - done]
            window[done : done + piece.size] = piece
            done, shard = done + piece.size, shard + 1

    def locate_document(self, offset: int) -> DocumentPlace:
        """The document that holds the token at `offset`."""
        if not 0 <= offset < self.num_tokens:
            raise IndexError(f"{self.name} has {self.num_tokens:,} tokens, there is no offset {offset:,}")
        number = bisect_right(self._ends, offset)
        shard, base = self._index(number), int(self._offsets[number])
        # From the right: documents without tokens share an offset, and the last of them is the one with tokens.
        document = int(np.searchsorted(shard.document_offsets, offset - base, "right")) - 1
        first, end = shard.document_offsets[document : document + 2].tolist()
        name = self.manifest.shards[number]
        place = read_place(self._path(name + PLACES_SUFFIX), document)
        return DocumentPlace(name, document, place.file, place.row, place.id, base + first, end - first)

    def _entry(self, path: str) -> FileEntry:
        if path not in self._entries:
            raise VerificationError(
                f"{self.folder}: the manifest names a shard but not its file {path}; build it again"
            )
        return self._entries[path]

    def _shard_tokens(self, shard: str) -> int:
        """Tokens of a shard by the manifest, which must also be what its size holds."""
        entry = self._entry(f"{shard}.bin")
        self._entry(f"{shard}.idx")
        tokens, rest = divmod(entry.bytes, self.dtype.itemsize)
        if rest or entry.tokens not in (None, tokens):
            raise VerificationError(
                f"{self.folder}: the manifest gives {entry.path} {entry.bytes:,} bytes and {entry.tokens} tokens of "
                f"{self.dtype.name}, which do not agree; build it again"
            )
        return tokens

    def _path(self, relative: str) -> Path:
        return storage.local_path(self._loaded.file_url(relative))

    def _map(self, number: int) -> NDArray[Any]:
        entry = self._entries[f"{self.manifest.shards[number]}.bin"]
        path = self._path(entry.path)
        self._check_size(entry)  # again: it may have been opened hours ago
        if entry.bytes == 0:  # nothing cannot be mapped
            return np.empty(0, self.dtype)
        return np.asarray(np.memmap(path, self.dtype, "r"))

    def _open_index(self, number: int) -> Shard:
        name = self.manifest.shards[number]
        shard = Shard(self._path(f"{name}.idx").with_suffix(""))
        if shard.dtype != self.dtype or shard.num_tokens != self._ends[number] - self._offsets[number]:
            raise VerificationError(
                f"{shard.prefix}.idx has {shard.num_tokens:,} tokens of {shard.dtype.name}, the manifest needs "
                f"{self._ends[number] - self._offsets[number]:,} of {self.dtype.name}; restore it or tokenize again"
            )
        return shard

    def _check_files(self, verify: Verify) -> None:
        for entry in self.manifest.files:
            self._check_size(entry)
        if settle(verify, self.manifest.files) is Verify.FULL:
            for entry in self.manifest.files:
                check_hash(self._loaded, entry)
            for number in range(len(self.manifest.shards)):
                self._open_index(number)

    def _check_size(self, entry: FileEntry) -> None:
        path = self.folder / entry.path
        try:
            have = self._size(path, entry.path)
        except FileNotFoundError:
            raise VerificationError(
                f"{path} is missing, but {self._loaded.url} lists it; restore it or tokenize again"
            ) from None
        if have != entry.bytes:
            raise VerificationError(
                f"{path} has {have:,} bytes, but {self._loaded.url} needs {entry.bytes:,}; restore it or tokenize again"
            )

    def _size(self, path: Path, relative: str) -> int:
        """Bytes of a file, by one system call where it is a plain file right in the folder: there may be 100,000."""
        status = os.lstat(path)
        if "/" in relative or stat.S_ISLNK(status.st_mode):
            return os.stat(self._path(relative)).st_size
        return status.st_size
