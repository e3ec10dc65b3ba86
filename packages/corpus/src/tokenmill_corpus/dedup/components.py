"""Candidates that hang together: documents linked by buckets, and so the units in which near-duplicates are looked for.

    buckets ─▶ union-find over all documents ─▶ components ─▶ groups of components, a task of the next phase each

Nothing in one component can be a near-duplicate of anything in another, so how components are grouped changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.stage import Report, Task, Work
from tokenmill_corpus.dedup.buckets import bucket_paths
from tokenmill_corpus.dedup.keys import map_array, save_sorted
from tokenmill_corpus.dedup.order import Order
from tokenmill_corpus.dedup.scratch import scratch_array
from tokenmill_corpus.survivors import survivors_path

COMPONENTS = "components"
"""Name of the phase."""
CANDIDATE = np.dtype([("key", "<u8"), ("bucket", "<u8"), ("document", "<i8")])
"""`key`: number of the group that the bucket belongs to."""
_SHARE_OF_MEMORY = 32
"""What a group's texts may take of the memory: their shingles take more, and there should be enough groups to share."""


def candidate_paths(work: Work) -> list[Path]:
    """The files of the phase, one for each partition of the buckets."""
    return sorted((work.folder / COMPONENTS).glob("*.npy"))


@dataclass(frozen=True)
class Components:
    """The components of all buckets, in groups."""

    memory_bytes: int

    def plan(self, work: Work) -> Sequence[Task]:
        """One task: it holds a number a document, and reads buckets one partition at a time."""
        return [Task(index=0, payload={}, weight=sum(path.stat().st_size for path in bucket_paths(work)))]

    def run(self, task: Task, work: Work) -> Report:
        """Write the buckets of each partition sorted by group."""
        order = Order.of(work)
        parent = scratch_array(work.folder, order.num_documents, np.int64)
        parent[:] = np.arange(len(parent))
        is_member = np.zeros(len(parent), np.bool_)
        for path in bucket_paths(work):
            members = map_array(path)
            numbers = np.ascontiguousarray(members["document"])
            is_member[numbers] = True
            _unite(np.ascontiguousarray(members["key"]), numbers, parent)
        flatten(parent)
        numbers = np.flatnonzero(is_member)
        _, component, sizes = np.unique(parent[numbers], return_inverse=True, return_counts=True)
        group = _group(sizes, self._documents_per_group(work, order))
        for path in bucket_paths(work):
            members = map_array(path)
            candidates = np.empty(len(members), CANDIDATE)
            candidates["bucket"], candidates["document"] = members["key"], members["document"]
            candidates["key"] = group[component[np.searchsorted(numbers, members["document"])]]
            save_sorted(work.path(COMPONENTS, path.name), candidates)
        documents = np.bincount(group, weights=sizes).astype(int).tolist() if len(group) else []
        return Report(
            extra={"groups": documents, "components": len(sizes), "largest_component": int(sizes.max(initial=0))}
        )

    def _documents_per_group(self, work: Work, order: Order) -> int:
        num_bytes = sum(survivors_path(work, task).stat().st_size for task in range(order.num_tasks))
        return max(1, self.memory_bytes // _SHARE_OF_MEMORY * order.num_documents // max(1, num_bytes))


def _group(sizes: NDArray[np.int64], documents_per_group: int) -> NDArray[np.int64]:
    """A group for each component, of about as many documents each: numbered from 0 without a gap."""
    share = (np.cumsum(sizes) - sizes) // documents_per_group
    group: NDArray[np.int64] = np.unique(share, return_inverse=True)[1]
    return group


@numba.njit(cache=True)
def find(parent: NDArray[np.int64], node: int) -> int:
    """The root of `node`'s tree; the path to it is halved."""
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


@numba.njit(cache=True)
def unite(parent: NDArray[np.int64], one: int, other: int) -> None:
    """Join two trees; the least node of both is the root."""
    a, b = find(parent, one), find(parent, other)
    parent[max(a, b)] = min(a, b)


@numba.njit(cache=True)
def _unite(keys: NDArray[np.uint64], numbers: NDArray[np.int64], parent: NDArray[np.int64]) -> None:
    for i in range(1, len(keys)):
        if keys[i] == keys[i - 1]:
            unite(parent, numbers[i - 1], numbers[i])


@numba.njit(cache=True)
def flatten(parent: NDArray[np.int64]) -> None:
    """Replace the parent of each node by its root."""
    for node in range(len(parent)):
        parent[node] = find(parent, node)
