"""The order of all documents, and which of several duplicates stays.

A document's number is its place among the survivors of all filter tasks, task by task. Of duplicates the best stays: a
document of a corpus that others are cleaned of before any other, then the least rank, then the least number.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokenmill_core.errors import InputError
from tokenmill_core.stage import Work
from tokenmill_corpus.dedup.keys import map_array
from tokenmill_corpus.dedup.settings import DedupSettings, Keep
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.survivors import FILTER

SKETCH = "sketch"
"""Folder of what the filter tasks leave for deduplication."""
_WORST = np.uint64(0xFFFFFFFFFFFFFFFF)


def ranks_path(work: Work, task: int) -> Path:
    """Where the ranks of the documents of a filter task lie."""
    return work.path(SKETCH, f"{task:06d}.ranks.npy")


def keys_path(work: Work, task: int, method: str, part: int) -> Path:
    """Where a part of the keys of a filter task lies."""
    return work.path(SKETCH, f"{task:06d}.{method}.{part:04d}.npy")


def keys_paths(work: Work, task: int, method: str) -> list[Path]:
    """All parts of the keys of a filter task, in the order of its documents."""
    return sorted((work.folder / SKETCH).glob(f"{task:06d}.{method}.*.npy"))


def check_scores(work: Work, settings: DedupSettings) -> None:
    """Refuse a `score_column` without a number in it.

    Errors: `InputError` naming the column, where there are documents and none of them has a number.
    """
    if settings.keep is not Keep.SCORE:
        return
    order = Order.of(work)
    paths = [ranks_path(work, int(task)) for task in np.flatnonzero(~order.reference)]
    found = [map_array(path) for path in paths if path.exists()]
    if any(map(len, found)) and not any((ranks != _WORST).any() for ranks in found):
        raise InputError(
            f"score_column {settings.score_column!r}: no document that filters left has a number there; "
            f"name a column of numbers, or set keep to something else than {settings.keep.value!r}"
        )


@dataclass(frozen=True)
class Order:
    """The numbers of all documents."""

    starts: NDArray[np.int64]
    """Number of each task's first document, and at the end that of all documents."""
    reference: NDArray[np.bool_]
    """Which tasks read a corpus that others are cleaned of."""

    @classmethod
    def of(cls, work: Work) -> Self:
        """The order of what the filter phase left."""
        found = [report.extra for report in work.reports(FILTER)]
        starts = np.cumsum([0, *(extra["survivors"] for extra in found)], dtype=np.int64)
        return cls(starts, np.array([extra["reference"] for extra in found], np.bool_))

    @property
    def num_tasks(self) -> int:
        """Filter tasks."""
        return len(self.reference)

    @property
    def num_documents(self) -> int:
        """Documents of all tasks."""
        return int(self.starts[-1])

    def locate(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(task, index among its survivors) of documents."""
        tasks = np.searchsorted(self.starts, numbers, side="right") - 1
        return tasks, numbers - self.starts[tasks]

    def of_reference(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which documents are of a corpus that others are cleaned of."""
        return self.reference[self.locate(numbers)[0]]

    def best_first(self, work: Work, numbers: NDArray[np.int64]) -> NDArray[np.intp]:
        """The order of documents in which the one that would stay comes first, as positions in `numbers`."""
        tasks, indices = self.locate(numbers)
        ranks = np.zeros(len(numbers), np.uint64)
        for task in np.unique(tasks):
            here = tasks == task
            if (path := ranks_path(work, int(task))).exists():
                ranks[here] = map_array(path)[indices[here]]
        return np.lexsort((numbers, ranks, ~self.reference[tasks]))


def ranks(settings: DedupSettings, documents: Documents) -> NDArray[np.uint64] | None:
    """Rank of each document, the best has the least; none where only the order of documents counts."""
    if settings.keep is Keep.LONGEST:
        return _WORST - documents.text.num_bytes.astype(np.uint64)
    if settings.keep is Keep.PRIORITY:
        inputs = pc.list_element(pc.split_pattern(documents.batch.column("file"), "/", max_splits=1), 0)
        index = pc.index_in(inputs, pa.array(settings.priority, inputs.type))
        return np.asarray(pc.fill_null(index, len(settings.priority)), np.uint64)
    if settings.keep is Keep.SCORE:
        return _ranks_of_scores(documents.batch, settings.score_column)
    return None


def _ranks_of_scores(batch: pa.RecordBatch, column: str) -> NDArray[np.uint64]:
    if batch.schema.get_field_index(column) < 0:
        raise InputError(f"score_column {column!r}: the documents have no such column, but {batch.schema.names}")
    values = _numbers(batch.column(column), column)
    # The bits of a float sort as it does once the sign is dealt with; -0.0 + 0.0 is 0.0.
    bits = (values + 0.0).view(np.uint64)
    sign = np.uint64(1 << 63)
    ascending = np.where(bits & sign, ~bits, bits | sign)
    return np.where(np.isnan(values), _WORST, ~ascending)


def _numbers(values: pa.Array, column: str) -> NDArray[np.float64]:
    """The values, NaN where there is none; text that does not read as a number is none."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return np.array([_number(text) for text in values.to_pylist()], np.float64)
    try:
        return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    except pa.ArrowException as error:
        raise InputError(f"score_column {column!r}: not a column of numbers: {error}") from error


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan
