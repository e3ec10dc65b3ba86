"""Duplicates by equal keys: documents with the same digest, of their bytes, their words or their URL.

keys of all tasks ─▶ a partition a task ─▶ sorted ─▶ runs of equals ─▶ the best of each stays
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.stage import Report, Task, Work
from tokenmill_corpus.dedup.drops import dropped_so_far, drops_path, save_drops
from tokenmill_corpus.dedup.keys import are_shared, count_partitions, read_partition, sorting, starts_of_runs
from tokenmill_corpus.dedup.methods import Method
from tokenmill_corpus.dedup.order import Order, keys_paths

VALUES = {Method.EXACT: 1.0, Method.NORMALISED: 1.0, Method.URL: float("nan")}
"""Jaccard similarity of what each method drops to what stays in its place."""


@dataclass(frozen=True)
class KeyPartitions:
    """The keys of one method, cut into partitions that fit into memory, a task each."""

    method: Method
    earlier: Sequence[Method]
    """Methods whose drops are out already."""
    memory_bytes: int

    def plan(self, work: Work) -> Sequence[Task]:
        """A task a partition."""
        paths = [path for _, path in self.paths(work, Order.of(work))]
        count = count_partitions(paths, self.memory_bytes)
        weight = sum(path.stat().st_size for path in paths) // count
        return [Task(index=index, payload={"of": count}, weight=weight) for index in range(count)]

    def paths(self, work: Work, order: Order) -> list[tuple[int, Path]]:
        """(filter task, a part of its keys), in the order of the documents."""
        return [(task, path) for task in range(order.num_tasks) for path in keys_paths(work, task, self.method)]

    def read(self, task: Task, work: Work, order: Order) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """(keys, numbers) of the documents of a partition that are not out yet, sorted by all of the key."""
        parts = [(t, read_partition(path, task.index, task.payload["of"])) for t, path in self.paths(work, order)]
        if not parts:
            return np.empty((0, 1), np.uint64), np.empty(0, np.int64)
        numbers = np.concatenate([order.starts[t] + part["index"].astype(np.int64) for t, part in parts])
        names = [name for name in parts[0][1].dtype.names or () if name != "index"]
        keys = np.stack([np.concatenate([part[name] for _, part in parts]) for name in names], axis=1)
        if self.earlier:
            stays = ~dropped_so_far(work, self.earlier, order.num_documents)[numbers]
            keys, numbers = keys[stays], numbers[stays]
        by_key = sorting(*keys.T, numbers)
        return keys[by_key], numbers[by_key]


@dataclass(frozen=True)
class EqualKeys(KeyPartitions):
    """Of documents of equal keys the best one stays."""

    def run(self, task: Task, work: Work) -> Report:
        """Write down which documents of a partition go, and which stay in their place."""
        order = Order.of(work)
        keys, numbers = self.read(task, work, order)
        shared = are_shared(*keys.T)
        numbers = numbers[shared]
        group = np.cumsum(starts_of_runs(*keys[shared].T))
        best = order.best_first(work, numbers)
        best = best[np.argsort(group[best], kind="stable")]
        group, numbers = group[best], numbers[best]
        first = starts_of_runs(group)
        kept = numbers[first][np.cumsum(first) - 1]
        save_drops(drops_path(work, self.method, task.index), numbers[~first], kept[~first], VALUES[self.method])
        return Report(extra={"dropped": int((~order.of_reference(numbers[~first])).sum())})
