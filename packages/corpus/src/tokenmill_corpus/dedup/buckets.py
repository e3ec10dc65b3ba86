"""Buckets: documents that share the key of a band, and may be near-duplicates.

band keys of all tasks ─▶ a partition a task ─▶ sorted ─▶ (bucket, document), where a bucket has several
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenmill_core.stage import Report, Task, Work
from tokenmill_corpus.dedup.equal import KeyPartitions
from tokenmill_corpus.dedup.keys import are_shared, save_sorted, starts_of_runs
from tokenmill_corpus.dedup.order import Order

BUCKETS = "buckets"
"""Name of the phase."""
MEMBER = np.dtype([("key", "<u8"), ("document", "<i8")])
"""`key`: that of the band, and so the bucket's name; `document`: the number of one of its documents."""


def bucket_paths(work: Work) -> list[Path]:
    """The files of the phase, a partition each."""
    return sorted((work.folder / BUCKETS).glob("*.npy"))


@dataclass(frozen=True)
class Buckets(KeyPartitions):
    """The buckets of several documents."""

    def run(self, task: Task, work: Work) -> Report:
        """Write the members of a partition's buckets."""
        keys, numbers = self.read(task, work, Order.of(work))
        shared = are_shared(*keys.T)
        members = np.empty(int(shared.sum()), MEMBER)
        members["key"], members["document"] = keys[shared, 0], numbers[shared]
        save_sorted(work.path(BUCKETS, f"{task.index:06d}.npy"), members)
        starts = np.flatnonzero(np.append(starts_of_runs(members["key"]), True))
        sizes = np.diff(starts) if len(members) else np.zeros(0, np.int64)
        return Report(extra={"buckets": len(sizes), "largest": int(sizes.max(initial=0))})
