"""What the filter phase leaves in the work folder: the documents that passed, an Arrow file a task.

A document is known by (task, index): the filter task that read it, and which of the task's survivors it is. Both depend
on the data alone, so the order of these pairs is the order of the data.
"""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenmill_core.documents import DOCUMENT_SCHEMA
from tokenmill_core.stage import Work
from tokenmill_core.storage import AtomicWriter

FILTER = "filter"
"""Name of the phase."""
_PLACES = pa.schema([DOCUMENT_SCHEMA.field(name) for name in ("id", "file", "row")])


def survivors_path(work: Work, task: int) -> Path:
    """Where the survivors of a filter task lie."""
    return work.path(FILTER, f"{task:06d}.arrow")


class SurvivorsWriter:
    """Writes the survivors of one task. The first batch gives the schema: families may have added columns."""

    def __init__(self, work: Work, task: int) -> None:
        self._file = AtomicWriter(survivors_path(work, task))
        self._writer: pa.RecordBatchFileWriter | None = None
        self.num_documents = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""
        self._writer = self._writer or pa.ipc.new_file(self._file, batch.schema)
        self._writer.write_batch(batch)
        self.num_documents += batch.num_rows

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            (self._writer or pa.ipc.new_file(self._file, DOCUMENT_SCHEMA)).close()
        self._file.__exit__(kind, error, trace)


def read_survivors(work: Work, task: int) -> Iterator[pa.RecordBatch]:
    """The survivors of a filter task in their order, mapped into memory rather than read."""
    with pa.memory_map(str(survivors_path(work, task))) as file, pa.ipc.open_file(file) as reader:
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index)


def places_of(work: Work, tasks: NDArray[np.integer], indices: NDArray[np.integer]) -> pa.Table:
    """Columns `id`, `file` and `row` of the survivors (tasks[i], indices[i]), in this order."""
    if not len(tasks):
        return _PLACES.empty_table()
    found: list[pa.Table] = []
    positions: list[NDArray[np.intp]] = []
    for task in np.unique(tasks):
        here = np.flatnonzero(tasks == task)
        table = pa.Table.from_batches(batch.select(_PLACES.names) for batch in read_survivors(work, int(task)))
        found.append(table.take(pa.array(indices[here])))
        positions.append(here)
    order = np.argsort(np.concatenate(positions), kind="stable")
    return pa.concat_tables(found).take(pa.array(order))
