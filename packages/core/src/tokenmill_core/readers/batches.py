"""Documents gathered into record batches of bounded size."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokenmill_core.documents import MAX_BATCH_BYTES, document_schema

MAX_BATCH_ROWS = 1 << 16
"""A batch holds at most this many documents, so that millions of tiny ones stay small in memory too."""


class BatchBuilder:
    """Collects the documents of one file."""

    def __init__(self, file: str, carry: Sequence[str] = ()) -> None:
        self._file = file
        self._carry = carry
        self._clear()

    def _clear(self) -> None:
        self._ids: list[str | None] = []
        self._texts: list[str] = []
        self._rows: list[int] = []
        self._carried: list[Sequence[str | None]] = []
        self._bytes = 0

    def has_room(self, num_bytes: int) -> bool:
        """Whether a document of at most `num_bytes` UTF-8 bytes still fits; into an empty batch any does."""
        fits = self._bytes + num_bytes <= MAX_BATCH_BYTES and len(self._rows) < MAX_BATCH_ROWS
        return fits or not self._rows

    def add(
        self, *, id: str | None, text: str, row: int, num_bytes: int, carried: Sequence[str | None] | None = None
    ) -> None:
        """Append a document; `num_bytes` is what `has_room` was asked for, `carried` a value for each name to carry."""
        self._ids.append(id)
        self._texts.append(text)
        self._rows.append(row)
        if self._carry:
            self._carried.append(carried or [None] * len(self._carry))
        self._bytes += num_bytes

    def take(self) -> Iterator[pa.RecordBatch]:
        """The batch, if it holds anything, leaving the builder empty."""
        if self._rows:
            batch = make_batch(
                ids=pa.array(self._ids, pa.string()),
                texts=pa.array(self._texts, pa.large_string()),
                file=self._file,
                rows=pa.array(self._rows, pa.int64()),
                carried={
                    name: pa.array(values, pa.string())
                    for name, values in zip(self._carry, zip(*self._carried, strict=True), strict=True)
                },
            )
            self._clear()
            yield batch


def make_batch(
    *, ids: pa.Array, texts: pa.Array, file: str, rows: pa.Array, carried: Mapping[str, pa.Array]
) -> pa.RecordBatch:
    """A batch of `document_schema(carried)` whose documents all come from `file`."""
    files = pa.repeat(pa.scalar(file, pa.string()), len(texts))
    arrays = [ids, texts, files, rows, *carried.values()]
    return pa.RecordBatch.from_arrays(arrays, schema=document_schema(list(carried)))


def text_bytes(batch: pa.RecordBatch) -> int:
    """UTF-8 bytes of a batch's texts."""
    return int(pc.sum(pc.binary_length(batch.column("text"))).as_py() or 0)


def cut_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """`batch` in slices within the limits; a document over the limit by itself is a slice of its own."""
    lengths = pc.binary_length(batch.column("text")).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths, dtype=np.int64)
    start = 0
    while start < batch.num_rows:
        limit = MAX_BATCH_BYTES + (int(ends[start - 1]) if start else 0)
        stop = max(start + 1, int(np.searchsorted(ends, limit, side="right")))
        stop = min(stop, start + MAX_BATCH_ROWS)
        yield batch.slice(start, stop - start)
        start = stop


def join_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same documents in the same order, small neighbours joined into batches within the limits."""
    waiting: list[pa.RecordBatch] = []
    rows = num_bytes = 0
    for batch in batches:
        size = text_bytes(batch)
        if waiting and (rows + batch.num_rows > MAX_BATCH_ROWS or num_bytes + size > MAX_BATCH_BYTES):
            yield _joined(waiting)
            waiting, rows, num_bytes = [], 0, 0
        waiting.append(batch)
        rows, num_bytes = rows + batch.num_rows, num_bytes + size
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0]


@dataclass(frozen=True)
class Sized:
    """Documents of one file, and at most how many UTF-8 bytes each has."""

    batch: pa.RecordBatch
    num_bytes: NDArray[np.int64]


def by_row(parts: Sequence[Sized]) -> Sized:
    """All documents of `parts`, at least one, the smallest rows first."""
    if len(parts) == 1:
        return parts[0]
    batch = _joined([part.batch for part in parts])
    order = np.argsort(batch.column("row").to_numpy())
    return Sized(batch.take(pa.array(order)), np.concatenate([part.num_bytes for part in parts])[order])


def gather(parts: Iterable[Sized]) -> Iterator[pa.RecordBatch]:
    """The same documents in batches that end where a `BatchBuilder` asked for room would end them."""
    held: list[pa.RecordBatch] = []
    rows = num_bytes = 0
    for part in parts:
        ends = np.cumsum(part.num_bytes)
        start = taken = 0
        while start < len(ends):
            stop = int(np.searchsorted(ends, taken + MAX_BATCH_BYTES - num_bytes, side="right"))
            stop = min(max(stop, start + (not held)), start + MAX_BATCH_ROWS - rows)
            if stop > start:
                held.append(part.batch.slice(start, stop - start))
                rows, num_bytes = rows + stop - start, num_bytes + int(ends[stop - 1]) - taken
                start, taken = stop, int(ends[stop - 1])
            if start < len(ends):
                yield _joined(held)
                held, rows, num_bytes = [], 0, 0
    if held:
        yield _joined(held)
