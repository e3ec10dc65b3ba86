"""Token shards in Megatron's MMIDIDX format, version 1: `<prefix>.bin` holds tokens, `<prefix>.idx` says where.

    .idx  9 bytes magic │ u64 version │ u8 dtype code │ u64 S sequences │ u64 D = documents + 1
          │ i32[S] lengths in tokens │ i64[S] byte pointers │ i64[D] first sequence of each document, then S
    .bin  the tokens of all sequences, one after another

All little-endian and unpadded. The format has no checksum and no flag for the end of documents: the `tokens` manifest
holds both. We write one sequence a document, and read any number.
"""

import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tokenmill_core.errors import InputError, VerificationError
from tokenmill_core.manifest import FileEntry
from tokenmill_core.storage import HashingWriter

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
DTYPE_CODES: dict[np.dtype[Any], int] = {np.dtype("<u2"): 8, np.dtype("<i4"): 4}
"""The two token types in use. The format has codes for others, none of which a tokenizer's ids need."""


def dtype_for(vocab_size: int) -> np.dtype[Any]:
    """The narrowest token type that holds every id below `vocab_size`, special tokens included."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<i4")


def sequence_offsets(lengths: ArrayLike) -> NDArray[np.int64]:
    """Token offset of each sequence and of the end: shape (S + 1,), summed in 64 bits whatever type `lengths` has."""
    offsets = np.zeros(np.size(lengths) + 1, np.int64)
    np.cumsum(lengths, dtype=np.int64, out=offsets[1:])
    return offsets


def bin_path(prefix: Path) -> Path:
    """The file of tokens; `prefix` may hold dots of its own."""
    return prefix.with_name(prefix.name + ".bin")


def idx_path(prefix: Path) -> Path:
    """The index file."""
    return prefix.with_name(prefix.name + ".idx")


class ShardWriter:
    """Writes one shard. Its two files take their names on `close`, tokens first, so an index is proof of both.

    As a context manager: leaving it by an exception leaves nothing new.
    """

    def __init__(self, prefix: Path, dtype: DTypeLike, vocab_size: int) -> None:
        self.prefix = prefix
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.vocab_size = vocab_size
        if self.dtype not in DTYPE_CODES:
            raise InputError(f"{prefix}: tokens cannot be stored as {self.dtype.name}; use uint16 or int32")
        if vocab_size - 1 > np.iinfo(self.dtype).max:
            raise InputError(
                f"{prefix}: a vocabulary of {vocab_size:,} ids does not fit {self.dtype.name}, "
                f"use {dtype_for(vocab_size).name}"
            )
        self.num_documents = 0
        self.num_tokens = 0
        self.files: list[FileEntry] = []
        """What was written, paths relative to the prefix's folder. Filled by `close`."""
        self._lengths: list[NDArray[np.int32]] = []
        self._tokens = HashingWriter(bin_path(prefix))

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each document so far."""
        return np.concatenate([np.zeros(0, np.int32), *self._lengths])

    def append(self, ids: ArrayLike, lengths: ArrayLike) -> None:
        """Add documents: `ids` (tokens of all of them, one after another) and `lengths` (tokens of each).

        Raises InputError, with nothing written, when an id is negative or not below `vocab_size`, or when the lengths
        do not sum to the number of ids.
        """
        ids, lengths = _integers(ids, "ids"), _integers(lengths, "lengths")
        total = int(sequence_offsets(lengths)[-1])
        if total != ids.size or (lengths.size and lengths.min() < 0):
            raise InputError(f"{self.prefix}: lengths sum to {total:,} tokens, but {ids.size:,} ids were given")
        if lengths.size and lengths.max() > np.iinfo(np.int32).max:
            raise InputError(f"{self.prefix}: a document has {lengths.max():,} tokens; the format holds 2,147,483,647")
        self._check_ids(ids, lengths)
        if ids.size:
            self._tokens.write(np.ascontiguousarray(ids, self.dtype).data)
        self._lengths.append(lengths.astype(np.int32))
        self.num_documents += lengths.size
        self.num_tokens += total

    def _check_ids(self, ids: NDArray[Any], lengths: NDArray[Any]) -> None:
        if not ids.size or (ids.min() >= 0 and ids.max() < self.vocab_size):
            return
        place = int(np.argmax((ids < 0) | (ids >= self.vocab_size)))
        document = self.num_documents + int(np.searchsorted(sequence_offsets(lengths), place, "right")) - 1
        raise InputError(
            f"{self.prefix}: document {document} holds the id {ids[place]}, but the vocabulary ends at "
            f"{self.vocab_size - 1}; tokenize with the tokenizer whose size was given"
        )

    def close(self) -> None:
        """Give both files their names. Closing twice does nothing."""
        if self.files:
            return
        # An older index must not be found beside newer tokens if we are killed between the two names.
        idx_path(self.prefix).unlink(missing_ok=True)
        try:
            self._tokens.close()
            index = write_index(self.prefix, self.dtype, self.lengths)
        except BaseException:
            self.abandon()
            bin_path(self.prefix).unlink(missing_ok=True)
            raise
        self.files = [self._entry(self._tokens, True), self._entry(index, False)]

    def _entry(self, file: HashingWriter, counts: bool) -> FileEntry:
        return FileEntry(
            path=file.path.name,
            bytes=file.bytes,
            sha256=file.sha256,
            documents=self.num_documents if counts else None,
            tokens=self.num_tokens if counts else None,
        )

    def abandon(self) -> None:
        """Remove what was written. An older shard of the same name stays."""
        self._tokens.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif not self.files:
            self.abandon()


def write_index(
    prefix: Path, dtype: np.dtype[Any], lengths: NDArray[Any], first_sequences: NDArray[np.int64] | None = None
) -> HashingWriter:
    """Write the `.idx` of tokens that lie there already: `lengths` of its sequences, one after another.

    `first_sequences`: first sequence of each document, then the number of sequences; by default a sequence a document.
    """
    documents = np.arange(lengths.size + 1) if first_sequences is None else first_sequences
    pointers = sequence_offsets(lengths)[:-1] * dtype.itemsize
    with HashingWriter(idx_path(prefix)) as index:
        index.write(HEADER.pack(MAGIC, VERSION, DTYPE_CODES[dtype], lengths.size, documents.size))
        for array in (lengths.astype("<i4"), pointers.astype("<i8"), documents.astype("<i8")):
            index.write(array.tobytes())
    return index


def _integers(values: ArrayLike, what: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"{what} must be a flat array of integers, got {array.dtype.name} of shape {array.shape}")
    return array


class ShardIndex:
    """An `.idx` file, checked in full against itself.

    Raises VerificationError, naming the file, what it has and what it needs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        index = open_bytes(path)
        self.dtype, num_sequences, num_pointers = _parse_header(path, index)
        # Three arrays one after another behind the header, at offsets that are not aligned: frombuffer takes them.
        at = HEADER.size
        self.lengths: NDArray[np.int32] = np.frombuffer(index, "<i4", num_sequences, at)
        """Tokens of each sequence."""
        pointers = np.frombuffer(index, "<i8", num_sequences, at := at + 4 * num_sequences)
        documents = np.frombuffer(index, "<i8", num_pointers, at + 8 * num_sequences)
        offsets = sequence_offsets(self.lengths)
        self._check(pointers, documents, offsets)
        self.num_tokens = int(offsets[-1])
        self.first_sequences: NDArray[np.int64] = documents
        """First sequence of each document, then the number of sequences: shape (num_documents + 1,)."""
        self.document_offsets: NDArray[np.int64] = offsets[documents]
        """Token offset of each document's start, then of the end: shape (num_documents + 1,)."""

    @property
    def num_documents(self) -> int:
        """Documents in the shard."""
        return self.document_offsets.size - 1

    def _check(self, pointers: NDArray[Any], documents: NDArray[Any], offsets: NDArray[np.int64]) -> None:
        last = self.lengths.size
        if self.lengths.size and self.lengths.min() < 0:
            raise _damaged(self.path, f"a sequence of {self.lengths.min()} tokens")
        wrong = np.flatnonzero(pointers != offsets[:-1] * self.dtype.itemsize)
        if wrong.size:
            have, need = pointers[wrong[0]], offsets[wrong[0]] * self.dtype.itemsize
            raise _damaged(
                self.path, f"sequence {wrong[0]} at byte {have}, its lengths and {self.dtype.name} need {need}"
            )
        if documents[0] != 0 or documents[-1] != last or (np.diff(documents) < 0).any():
            raise _damaged(self.path, f"document indices that do not rise from 0 to {last}")


class Shard(ShardIndex):
    """A shard, memory-mapped: its index, and its tokens, whose number must be the index's."""

    def __init__(self, prefix: Path) -> None:
        super().__init__(idx_path(prefix))
        self.prefix = prefix
        have, need = _size(bin_path(prefix)), self.num_tokens * self.dtype.itemsize
        if have != need:
            raise VerificationError(
                f"{bin_path(prefix)} has {have:,} bytes, but its index {self.path.name} needs {need:,} "
                f"({self.num_tokens:,} tokens of {self.dtype.name}); restore both files or tokenize again"
            )
        self.tokens: NDArray[Any] = open_bytes(bin_path(prefix)).view(self.dtype)

    def document(self, number: int) -> NDArray[Any]:
        """Tokens of document `number`, counted from 0."""
        if not 0 <= number < self.num_documents:
            raise IndexError(f"{self.prefix} has {self.num_documents} documents, there is no number {number}")
        return self.tokens[self.document_offsets[number] : self.document_offsets[number + 1]]


def _parse_header(path: Path, index: NDArray[np.uint8]) -> tuple[np.dtype[Any], int, int]:
    if index.size < HEADER.size:
        raise _damaged(path, f"{index.size} bytes, a header alone needs {HEADER.size}")
    magic, version, code, num_sequences, num_pointers = HEADER.unpack(index[: HEADER.size].tobytes())
    if magic != MAGIC or version != VERSION:
        raise _damaged(path, f"magic {magic!r} and version {version}, needs {MAGIC!r} and {VERSION}")
    dtype = next((known for known, its_code in DTYPE_CODES.items() if its_code == code), None)
    if dtype is None:
        raise _damaged(path, f"token type code {code}, needs 8 (uint16) or 4 (int32)")
    need = HEADER.size + 12 * num_sequences + 8 * num_pointers
    if num_pointers < 1 or index.size != need:
        raise _damaged(
            path, f"{index.size:,} bytes, needs {need:,} for {num_sequences:,} sequences and {num_pointers:,} indices"
        )
    return dtype, num_sequences, num_pointers


def _damaged(path: Path, have: str) -> VerificationError:
    return VerificationError(f"{path} is damaged or not an MMIDIDX index: it has {have}; restore it or tokenize again")


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        raise VerificationError(f"{path} is missing; restore it or tokenize again") from None


def open_bytes(path: Path) -> NDArray[np.uint8]:
    """The bytes of `path`, mapped. A plain array on the map: slicing `np.memmap` itself costs microseconds."""
    if _size(path) == 0:  # nothing cannot be mapped
        return np.zeros(0, np.uint8)
    return np.asarray(np.memmap(path, np.uint8, "r"))
