"""One token file as a shard: its tokens stay the bytes they are, index and places are written beside them.

TokenFile ─▶ documents without a token left out ─▶ ids checked, documents hashed ─▶ .documents.parquet
    └─ hard link, or a copy ─▶ .bin, .loss_mask.bin ─▶ .idx, last
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokenmill_core import storage
from tokenmill_core.errors import InputError
from tokenmill_core.manifest import FileEntry
from tokenmill_shards.formats.mmididx import Shard, bin_path, sequence_offsets, write_index
from tokenmill_shards.formats.places import MASK_SUFFIX, PLACES_SUFFIX, places_schema
from tokenmill_shards.importing.token_file import CHUNK_TOKENS, TokenFile
from tokenmill_shards.writing.boundaries import Boundaries
from tokenmill_shards.writing.document_hashes import hash_ids

_LOG = logging.getLogger("tokenmill")
_MAX_LENGTH = np.iinfo(np.int32).max


@dataclass(frozen=True)
class ImportedShard:
    """Writes the shard `prefix` of what `source` holds."""

    source: TokenFile
    name: str
    """The raw file, as places name it."""
    prefix: Path
    vocab_size: int
    boundaries: Boundaries
    """Ids that may open or close documents; how many they do not, `write` counts."""

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each document of the file, those without one too."""
        return np.diff(self.source.ends, prepend=0)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Number in the file, from 1, of each document that has a token."""
        return np.flatnonzero(self.lengths) + 1

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """First token of each document that has one, and the end."""
        return sequence_offsets(self.lengths[self.rows - 1])

    def write(self) -> tuple[list[FileEntry], dict[str, int]]:
        """(the shard's files, notes on documents that nothing opens or closes).

        Raises:
            InputError: an id is not in the vocabulary, a document too long, or the loss mask not one of these tokens.
        """
        self._check_lengths()
        places, notes = self._write_places()
        tokens = place(self.source.path, bin_path(self.prefix), self.source.header_bytes)
        entries = [tokens.model_copy(update={"documents": self.rows.size, "tokens": self.source.tokens.size})]
        if self.source.loss_mask:
            self._check_mask(self.source.loss_mask)
            entries.append(place(self.source.loss_mask, self._beside(MASK_SUFFIX)))
        index = write_index(self.prefix, self.source.tokens.dtype, np.diff(self.offsets))
        Shard(self.prefix)
        return [*entries, *(_entry(file) for file in (index, places))], dict(notes)

    def _check_lengths(self) -> None:
        if self.lengths.size and self.lengths.max() > _MAX_LENGTH:
            number = int(self.lengths.argmax())
            raise InputError(
                f"{self.source.path}: document {number + 1} has {self.lengths[number]:,} tokens; a shard holds "
                f"documents of up to {_MAX_LENGTH:,}"
            )

    def _write_places(self) -> tuple[storage.HashingWriter, Counter[str]]:
        schema, notes = places_schema(), Counter[str]()
        with (
            storage.HashingWriter(self._beside(PLACES_SUFFIX)) as file,
            pq.ParquetWriter(file, schema, compression="zstd") as table,
        ):
            for start, stop in self._batches():
                tokens = self.source.tokens[self.offsets[start] : self.offsets[stop]]
                offsets = self.offsets[start : stop + 1] - self.offsets[start]
                self._check_ids(tokens, offsets, start)
                notes += self._unmarked(tokens, offsets)
                rows = self.rows[start:stop]
                ids = [self.source.ids[row - 1] for row in rows.tolist()] if self.source.ids else [None] * rows.size
                columns = {"file": [self.name] * rows.size, "row": rows, "id": ids, "hash": hash_ids(tokens, offsets)}
                table.write_batch(pa.RecordBatch.from_pydict(columns, schema))
        return file, notes

    def _batches(self) -> Iterator[tuple[int, int]]:
        """Runs of documents with at most `CHUNK_TOKENS` tokens together, or one that has more."""
        start = 0
        while start < self.rows.size:
            fitting = int(np.searchsorted(self.offsets, self.offsets[start] + CHUNK_TOKENS, "right")) - 1
            stop = max(start + 1, fitting)
            yield start, stop
            start = stop

    def _check_ids(self, tokens: NDArray[Any], offsets: NDArray[np.int64], first: int) -> None:
        if tokens.min() >= 0 and tokens.max() < self.vocab_size:
            return
        at = int(np.argmax((tokens < 0) | (tokens >= self.vocab_size)))
        row = self.rows[first + int(np.searchsorted(offsets, at, "right")) - 1]
        raise InputError(
            f"{self.source.path}: document {row} holds the id {int(tokens[at]) % (1 << 32)}, but the tokenizer's ids "
            f"end at {self.vocab_size - 1}; name the tokenizer that these tokens were made with, or another --dtype"
        )

    def _unmarked(self, tokens: NDArray[Any], offsets: NDArray[np.int64]) -> Counter[str]:
        """How many of the documents nothing opens, or closes, where something could."""
        begin, end = self.boundaries.begin_id, self.boundaries.end_id
        counts = Counter[str]()
        if begin is not None:
            counts["documents_without_beginning"] = int(np.count_nonzero(tokens[offsets[:-1]] != begin))
        if end is not None:
            counts["documents_without_end"] = int(np.count_nonzero(tokens[offsets[1:] - 1] != end))
        return counts

    def _check_mask(self, path: Path) -> None:
        mask = np.fromfile(path, np.uint8)
        if mask.size != self.source.tokens.size or (mask.size and mask.max() > 1):
            raise InputError(
                f"{path}: {mask.size:,} bytes up to {mask.max(initial=0)}; a loss mask has a 0 or 1 for each of the "
                f"{self.source.tokens.size:,} tokens: restore it, or remove it to count them all"
            )

    def _beside(self, suffix: str) -> Path:
        return self.prefix.with_name(self.prefix.name + suffix)


def place(source: Path, target: Path, skipped_bytes: int = 0) -> FileEntry:
    """Give the content of `source`, without its first bytes, the name `target`: as a hard link, or else a copy."""
    target.unlink(missing_ok=True)
    if not skipped_bytes:
        try:
            os.link(source.resolve(), target)
            num_bytes, sha256 = storage.hash_file(str(target))
            return FileEntry(path=target.name, bytes=num_bytes, sha256=sha256)
        except OSError as error:
            _LOG.warning("%s is copied, for it cannot be linked to: %s", source, error.strerror)
    with source.open("rb") as file, storage.HashingWriter(target) as writer:
        file.seek(skipped_bytes)
        while chunk := file.read(storage.CHUNK_BYTES):
            writer.write(chunk)
    return _entry(writer)


def _entry(file: storage.HashingWriter) -> FileEntry:
    return FileEntry(path=file.path.name, bytes=file.bytes, sha256=file.sha256)
