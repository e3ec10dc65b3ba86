"""Which parts of documents were seen before: lines, paragraphs, or runs of bytes, each known by a fingerprint.

    a task's parts ─▶ runs sorted by fingerprint ─▶ partition by partition: which came first ─▶ a task's repeated parts

A part has a place, a number that grows along the documents of a filter task. A run holds each fingerprint once, with
the first of its places and their number; the other places, its followers, lie beside it. So a line that stands in every
document of the world costs one record a run, and a partition is bounded by the number of different parts.

First is what comes first in the order of the data, documents of `against` before all others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.stage import Report, Task, Work
from tokenmill_corpus.dedup.fingerprint_order import fingerprint_order
from tokenmill_corpus.dedup.keys import (
    count_partitions,
    map_array,
    read_partition,
    read_range,
    save_array,
    save_sorted,
    starts_of_runs,
)
from tokenmill_corpus.survivors import FILTER

_OCCURRENCE = np.dtype([("key", np.uint64), ("check", np.uint64), ("place", np.int64), ("count", np.int64)])
"""`key` and `check` together are the fingerprint."""
_FOLLOWER = np.dtype([("first", np.int64), ("place", np.int64)])
_MARK = np.dtype([("key", np.uint64), ("place", np.int64), ("verdict", np.int8), ("gap", np.int64)])
"""`key`: the task; `place`: the first one of a fingerprint in a run; `gap`: how far that is from the first one of all,
where the run before ended between two places that are too near for a repeat, and otherwise 0."""
_FIRST_STAYS, _ALL_GO = 1, 2
_COPIES_WHILE_SORTING = 4


@dataclass
class OccurrencesWriter:
    """Takes the parts of a task in the order of their places, and writes them in runs that fit into memory."""

    work: Work
    phase: str
    task: int
    memory_bytes: int
    num_runs: int = 0
    _num_pending: int = 0
    _pending: list[tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]] = field(default_factory=list)

    def add(self, keys: NDArray[np.uint64], checks: NDArray[np.uint64], places: NDArray[np.int64]) -> None:
        """Parts with the fingerprints (`keys`, `checks`), the first of which are well-mixed bits."""
        most = max(1, self.memory_bytes // (_OCCURRENCE.itemsize * _COPIES_WHILE_SORTING))
        start = 0
        while start < len(keys):
            some = slice(start, start + most - self._num_pending)
            self._pending.append((keys[some], checks[some], places[some]))
            self._num_pending += len(keys[some])
            start = some.stop
            if self._num_pending == most:
                self.flush()

    def flush(self) -> None:
        """Write what was added since the last run. To be called at the end."""
        if not self._pending:
            return
        keys, checks, places = (np.concatenate(column) for column in zip(*self._pending, strict=True))
        self._pending.clear()
        self._num_pending = 0
        order = fingerprint_order(keys, checks)
        starts = starts_of_runs(keys[order], checks[order])
        first = order[starts]
        counts = np.diff(np.append(np.flatnonzero(starts), len(order)))
        records = np.empty(len(first), _OCCURRENCE)
        records["key"], records["check"], records["place"] = keys[first], checks[first], places[first]
        records["count"] = counts
        followers = np.empty(len(order) - len(first), _FOLLOWER)
        followers["first"], followers["place"] = np.repeat(places[first], counts)[~starts], places[order[~starts]]
        stem = f"{self.task:06d}.{self.num_runs:04d}"
        save_array(self.work.path(self.phase, f"{stem}.followers.npy"), followers)
        save_array(self.work.path(self.phase, f"{stem}.npy"), records)
        self.num_runs += 1

    def report(self, num_places: int) -> Report:
        """The report of the task, all of whose places are below `num_places`."""
        self.flush()
        return Report(extra={"runs": self.num_runs, "places": num_places})


@dataclass(frozen=True)
class Search:
    """The search for repeats among the parts that phase `parts` wrote, done in the tasks of phase `name`."""

    name: str
    parts: str
    memory_bytes: int
    max_copies: int = 1
    """Parts that occur no more often than this are not repeats, none of them."""
    spares_first: bool = True
    """Whether the first occurrence is no repeat."""
    distance: int = 1
    """How far from the first occurrence, in the same document, another one must be to be a repeat of it."""

    def plan(self, work: Work) -> Sequence[Task]:
        """A task a partition."""
        runs = [work.path(self.parts, f"{stem}.npy") for _, stem in self._runs(work)]
        num_partitions = count_partitions(runs, self.memory_bytes)
        return [
            Task(index=index, payload={"num_partitions": num_partitions}, weight=1) for index in range(num_partitions)
        ]

    def run(self, task: Task, work: Work) -> Report:
        """Write marks for what is repeated of one partition."""
        # In this order the first occurrence of a fingerprint comes first, and sorting leaves it there.
        ranks = _ranks(work)
        pieces, tasks = [np.empty(0, _OCCURRENCE)], [np.empty(0, np.int64)]
        for index, stem in sorted(self._runs(work), key=lambda run: ranks[run[0]]):
            records = read_partition(
                work.path(self.parts, f"{stem}.npy"), task.index, int(task.payload["num_partitions"])
            )
            pieces.append(records)
            tasks.append(np.full(len(records), index, np.int64))
        marks = self._marks(np.concatenate(pieces), np.concatenate(tasks))
        save_sorted(work.path(self.name, f"{task.index:06d}.npy"), marks)
        return Report()

    def repeated(self, work: Work, task: int) -> NDArray[np.bool_]:
        """For each place of a filter task, whether a part there is a repeat. Takes 2 bytes a place."""
        extra = work.report(self.parts, task).extra
        verdict, gaps = np.zeros(extra["places"], np.int8), [np.empty(0, _MARK)]
        for partition in range(len(work.reports(self.name))):
            marks = read_range(work.path(self.name, f"{partition:06d}.npy"), task, task + 1)
            verdict[marks["place"]] = marks["verdict"]
            gaps.append(marks[marks["gap"] > 0])
        late = np.concatenate(gaps)
        late = late[np.argsort(late["place"])]
        repeated: NDArray[np.bool_] = verdict == _ALL_GO
        for run in range(extra["runs"]):
            followers = map_array(work.path(self.parts, f"{task:06d}.{run:04d}.followers.npy"))
            first, place = followers["first"], followers["place"]
            far = place - first + _gaps_of(first, late) >= self.distance
            repeated[place] = (verdict[first] == _ALL_GO) | ((verdict[first] == _FIRST_STAYS) & far)
        return repeated

    def _runs(self, work: Work) -> list[tuple[int, str]]:
        """(filter task, name without suffix) of every run."""
        reports = work.reports(self.parts)
        return [(t, f"{t:06d}.{run:04d}") for t, report in enumerate(reports) for run in range(report.extra["runs"])]

    def _marks(self, records: NDArray[np.void], tasks: NDArray[np.int64]) -> NDArray[np.void]:
        order = fingerprint_order(records["key"].copy(), records["check"].copy())
        records, tasks = records[order], tasks[order]
        is_first = starts_of_runs(records["key"], records["check"])
        starts = np.flatnonzero(is_first)
        if not len(starts):
            return np.empty(0, _MARK)
        sizes = np.diff(np.append(starts, len(records)))
        copies = np.repeat(np.add.reduceat(records["count"], starts), sizes)
        first = np.repeat(starts, sizes)
        gap = np.where(tasks == tasks[first], records["place"] - records["place"][first], self.distance)
        spared = (gap < self.distance) & self.spares_first
        marked = (copies > self.max_copies) & ~(spared & (records["count"] == 1))
        marks = np.empty(int(marked.sum()), _MARK)
        marks["key"], marks["place"] = tasks[marked], records["place"][marked]
        marks["verdict"] = np.where(spared, _FIRST_STAYS, _ALL_GO)[marked]
        marks["gap"] = np.where(spared, gap, 0)[marked]
        return marks


def _gaps_of(places: NDArray[np.int64], late: NDArray[np.void]) -> NDArray[np.int64] | int:
    """The gap of each of `places`, from the marks that have one, sorted by place."""
    if not len(late):
        return 0
    found = np.minimum(np.searchsorted(late["place"], places), len(late) - 1)
    return np.where(late["place"][found] == places, late["gap"][found], 0)


def _ranks(work: Work) -> NDArray[np.int64]:
    """The order of filter tasks in which the first occurrence is looked for: those of `against` before all others."""
    reference = np.array([bool(report.extra["reference"]) for report in work.reports(FILTER)], np.bool_)
    ranks = np.empty(len(reference), np.int64)
    ranks[np.argsort(~reference, kind="stable")] = np.arange(len(reference))
    return ranks
