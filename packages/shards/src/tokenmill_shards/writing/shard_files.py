"""The files of shards, written together, and shards closed when they are full.

Encoded ─▶ shard-NNNNN.bin, .idx, .documents.parquet, with a loss mask .loss_mask.bin ─▶ read back and checked
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow.parquet as pq

from tokenmill_core.manifest import FileEntry
from tokenmill_core.storage import HashingWriter
from tokenmill_shards.formats.mmididx import ShardWriter, dtype_for
from tokenmill_shards.formats.places import MASK_SUFFIX, PLACES_SUFFIX, places_schema
from tokenmill_shards.writing.boundaries import Boundaries
from tokenmill_shards.writing.encoded import Encoded
from tokenmill_shards.writing.shard_check import Expected, check_shard


@dataclass(frozen=True)
class ShardForm:
    """What all shards of a dataset have in common."""

    vocab_size: int
    boundaries: Boundaries
    has_mask: bool
    carry: tuple[str, ...]
    """Columns beside the places."""
    shard_bytes: int
    """A shard is closed at the first end of a document where it holds this many bytes of text."""


class ShardFiles:
    """Writes one shard. Its files take their names on `close`, the index last, so that it is proof of all.

    As a context manager: leaving it by an exception leaves nothing new.
    """

    def __init__(self, prefix: Path, form: ShardForm) -> None:
        self.text_bytes = 0
        self.files: list[FileEntry] = []
        """What was written. Filled by `close`."""
        self._form = form
        self._schema = places_schema(form.carry)
        with ExitStack() as stack:
            self.tokens = stack.enter_context(ShardWriter(prefix, dtype_for(form.vocab_size), form.vocab_size))
            self._mask = stack.enter_context(HashingWriter(_beside(prefix, MASK_SUFFIX))) if form.has_mask else None
            self._places = stack.enter_context(HashingWriter(_beside(prefix, PLACES_SUFFIX)))
            self._table = stack.enter_context(pq.ParquetWriter(self._places, self._schema, compression="zstd"))
            self._open = stack.pop_all()

    def append(self, encoded: Encoded) -> None:
        """Add documents."""
        self.tokens.append(encoded.ids, encoded.lengths)
        self._table.write_batch(encoded.documents.select(self._schema.names))
        if self._mask is not None and encoded.mask is not None:
            self._mask.write(encoded.mask.data)
        self.text_bytes += int(encoded.text_bytes.sum())

    def close(self) -> None:
        """Give the files their names, read them back and check them.

        Raises:
            VerificationError: what lies on disk is not what was written.
        """
        self._open.close()
        form, tokens = self._form, self.tokens
        expected = Expected(
            dtype=tokens.dtype,
            vocab_size=form.vocab_size,
            boundaries=form.boundaries,
            has_mask=form.has_mask,
            num_documents=tokens.num_documents,
            num_tokens=tokens.num_tokens,
        )
        check_shard(tokens.prefix, expected, tokens.lengths)
        others = [writer for writer in (self._places, self._mask) if writer]
        entries = [FileEntry(path=other.path.name, bytes=other.bytes, sha256=other.sha256) for other in others]
        self.files = [*self.tokens.files, *entries]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._open.__exit__(kind, error, trace)


class ShardSeries:
    """The shards of one task: `<prefix>`, and where it fills more of them `<prefix>_0001` and so on.

    So the order of names is the order of the documents. A context manager, as `ShardFiles` is.
    """

    def __init__(self, prefix: Path, form: ShardForm) -> None:
        self.num_documents = self.num_tokens = self.text_bytes = 0
        self.files: list[FileEntry] = []
        """Of all shards that are closed."""
        self._prefix = prefix
        self._form = form
        self._num_shards = 0
        self._current: ShardFiles | None = None

    def append(self, encoded: Encoded) -> None:
        """Add documents, to as many shards as they need."""
        for part in self._parts(encoded):
            self._current = self._current or ShardFiles(self._next_prefix(), self._form)
            self._current.append(part)
            if self._current.text_bytes >= self._form.shard_bytes:
                self._close_current()

    def _parts(self, encoded: Encoded) -> Iterator[Encoded]:
        """`encoded` cut after each document that fills a shard."""
        ends = np.cumsum(encoded.text_bytes)
        start, base = 0, -(self._current.text_bytes if self._current else 0)
        while start < ends.size:
            stop = min(int(ends.size), int(np.searchsorted(ends, base + self._form.shard_bytes)) + 1)
            yield encoded.slice(start, stop)
            start, base = stop, int(ends[stop - 1])

    def _next_prefix(self) -> Path:
        # An underscore sorts behind the dot of a suffix, so file names are in order too.
        number = f"_{self._num_shards:04d}" if self._num_shards else ""
        self._num_shards += 1
        return self._prefix.with_name(self._prefix.name + number)

    def _close_current(self) -> None:
        shard, self._current = self._current, None
        if shard:
            shard.close()
            self.files += shard.files
            self.num_documents += shard.tokens.num_documents
            self.num_tokens += shard.tokens.num_tokens
            self.text_bytes += shard.text_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._close_current()
        elif self._current:
            self._current.__exit__(kind, error, trace)


def _beside(prefix: Path, suffix: str) -> Path:
    return prefix.with_name(prefix.name + suffix)
