"""What became of each filter task's documents, once every method is through.

drops of all methods ─▶ followed to the document that stays in the end ─▶ a file a filter task, and the clusters
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.stage import Report, Task, Work
from tokenmill_corpus.dedup.drops import UNKNOWN, drops_of
from tokenmill_corpus.dedup.keys import Records, map_array, save_array
from tokenmill_corpus.dedup.methods import Method, methods
from tokenmill_corpus.dedup.order import Order
from tokenmill_corpus.dedup.scratch import scratch_array
from tokenmill_corpus.dedup.settings import DedupSettings

OUTCOME = "duplicates"
"""Name of the phase."""
DUPLICATE = np.dtype([("index", "<u4"), ("rule", "u1"), ("kept_task", "<i4"), ("kept_index", "<i8"), ("value", "<f8")])
RULES = tuple(Method)
_LARGEST = 20
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Duplicates:
    """The documents of a filter task that go. All arrays have an entry for each, in the order of the documents."""

    indices: NDArray[np.int64]
    """Which of the task's survivors."""
    rules: NDArray[np.uint8]
    """Why, as an index into `RULES`."""
    kept_tasks: NDArray[np.int64]
    kept_indices: NDArray[np.int64]
    """The document that stays in its place: filter task, and which of its survivors; -1 where nobody knows."""
    values: NDArray[np.float64]
    """Jaccard similarity with that document: 1 for copies, NaN where nobody looked."""


def duplicates(work: Work, settings: DedupSettings, task: int) -> Duplicates:
    """What goes of filter task `task`, once the phases of deduplication are done."""
    found = map_array(_path(work, task)) if methods(settings) else np.zeros(0, DUPLICATE)
    columns = [np.array(found[name]) for name in ("index", "rule", "kept_task", "kept_index", "value")]
    index, rule, kept_task, kept_index, value = columns
    return Duplicates(index.astype(np.int64), rule, kept_task.astype(np.int64), kept_index, value)


def _path(work: Work, task: int) -> Path:
    return work.path(OUTCOME, f"{task:06d}.npy")


@dataclass(frozen=True)
class Outcome:
    """The drops of all methods, brought together."""

    settings: DedupSettings

    def plan(self, work: Work) -> Sequence[Task]:
        """One task: it goes through documents in their order, and looks up those that stay."""
        return [Task(index=0, payload={})]

    def run(self, task: Task, work: Work) -> Report:
        """Write the duplicates of each filter task; report how large clusters are."""
        order = Order.of(work)
        drops = _Drops(work, methods(self.settings), order.num_documents)
        kept_of_all: list[NDArray[np.int64]] = []
        for filter_task in range(order.num_tasks):
            if order.reference[filter_task]:
                continue
            first, end = int(order.starts[filter_task]), int(order.starts[filter_task + 1])
            numbers, kept, value = drops.resolved(first, end)
            records = _records(numbers - first, drops.rule[numbers] - 1, kept, value, order)
            save_array(_path(work, filter_task), records)
            kept_of_all.append(kept[kept != UNKNOWN])
        return Report(extra=_describe(np.concatenate([np.empty(0, np.int64), *kept_of_all]), order))


class _Drops:
    """For each document whether it goes, why, and in whose favour."""

    def __init__(self, work: Work, methods: Sequence[Method], num_documents: int) -> None:
        self.rule = scratch_array(work.folder, num_documents, np.uint8)
        """Number of the rule, from 1; 0 for what stays."""
        self.kept = scratch_array(work.folder, num_documents, np.int64)
        self.value = scratch_array(work.folder, num_documents, np.float64)
        for method in methods:
            for found in drops_of(work, method):
                numbers = found["key"].astype(np.int64)
                self.rule[numbers] = RULES.index(method) + 1
                self.kept[numbers], self.value[numbers] = found["kept"], found["value"]

    def resolved(self, first: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """(number, what stays in its place in the end, value) of those that go of the documents `first` to `end`."""
        numbers = first + np.flatnonzero(self.rule[first:end])
        # Copies: what was found is read again for later documents, and must not change.
        kept, value = np.array(self.kept[numbers]), np.array(self.value[numbers])
        # A document that stayed by one method can go by a later one: a few steps, each to a better document.
        while (on := np.flatnonzero((kept != UNKNOWN) & (self.rule[kept] > 0))).size:
            # Copies are as similar to a third document as each other; of any other two steps nobody knows.
            value[on] = np.where(value[on] == 1, self.value[kept[on]], np.nan)
            kept[on] = self.kept[kept[on]]
        return numbers, kept, value


def _records(
    indices: NDArray[np.int64],
    rules: NDArray[np.uint8],
    kept: NDArray[np.int64],
    value: NDArray[np.float64],
    order: Order,
) -> Records:
    records = np.empty(len(indices), DUPLICATE)
    records["index"], records["rule"], records["value"] = indices, rules, value
    kept_task, kept_index = order.locate(kept)
    unknown = kept == UNKNOWN
    records["kept_task"], records["kept_index"] = np.where(unknown, -1, kept_task), np.where(unknown, -1, kept_index)
    return records


def _describe(kept: NDArray[np.int64], order: Order) -> dict[str, object]:
    """How many clusters there are of each size, and the largest of them. A size counts the document that stays."""
    numbers, dropped = np.unique(kept, return_counts=True)
    sizes, counts = np.unique(dropped + 1, return_counts=True)
    largest = np.lexsort((numbers, -dropped))[:_LARGEST]
    tasks, indices = order.locate(numbers[largest])
    return {
        "cluster_sizes": {str(size): int(count) for size, count in zip(sizes, counts, strict=True)},
        "largest": [
            {"task": int(t), "index": int(i), "documents": int(n)}
            for t, i, n in zip(tasks, indices, dropped[largest] + 1, strict=True)
        ],
    }
