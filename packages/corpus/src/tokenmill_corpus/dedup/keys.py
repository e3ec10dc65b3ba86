"""Keyed records on disk: what duplicates are found by, when there is more of it than memory.

    records of a task ─▶ sorted by key ─▶ one .npy ─▶ partition p: those with the same leading bits, from every file

A record is an item of a structured array whose first field, `key`, holds 64 well-mixed bits, and whose other fields say
whose key it is. As each file is sorted, a partition is one contiguous slice of it, and equal keys always meet in one
partition. The number of partitions follows from the data and the memory allowed, never from workers, and nothing that
is found depends on it.
"""

import bisect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.storage import AtomicWriter

Records = NDArray[np.void]
"""Structured array with `key` (uint64) as its first field."""

_WORKING_COPIES = 8
"""A partition is held as it was read, as columns, in an order, and in that order as wider records."""


def save_sorted(path: Path, records: Records) -> None:
    """Write `records` in the order of their fields, first field first; those with equal keys lie side by side."""
    names = records.dtype.names or ()
    assert names[:1] == ("key",), records.dtype
    save_array(path, records[sorting(*(records[name] for name in names))])


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write a .npy that is on disk, whole, before the report that vouches for it."""
    with AtomicWriter(path) as file:
        np.save(file, array, allow_pickle=False)


def map_array(path: Path) -> NDArray[Any]:
    """A .npy, memory-mapped: only what is looked at is read."""
    array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def count_partitions(paths: Iterable[Path], memory_bytes: int) -> int:
    """How many partitions, a power of two, let each be worked on within `memory_bytes`."""
    total = sum(path.stat().st_size for path in paths) * _WORKING_COPIES
    return 1 << max(0, -(-total // memory_bytes) - 1).bit_length()


def read_partition(path: Path, partition: int, num_partitions: int) -> Records:
    """The records of one file whose key has the leading bits `partition`, sorted, copied into memory."""
    assert num_partitions & (num_partitions - 1) == 0, num_partitions
    width = (1 << 64) // num_partitions
    return read_range(path, partition * width, (partition + 1) * width)


def read_range(path: Path, first: int, end: int) -> Records:
    """The records of one file with `first <= key < end`, sorted, copied into memory."""
    records = map_array(path)
    low, high = (bisect.bisect_left(records, bound, key=lambda record: int(record["key"])) for bound in (first, end))
    return np.array(records[low:high])


def sorting(*columns: NDArray[Any]) -> NDArray[np.intp]:
    """The order that sorts rows, given as `columns`, by the first column, then the second, and so on."""
    # Keys are all but unique: a fast sort by them alone, and a thorough one of the few rows that it leaves open.
    order = np.argsort(columns[0])
    is_open = are_shared(columns[0][order])
    rows = order[is_open]
    order[is_open] = rows[np.lexsort([column[rows] for column in reversed(columns)])]
    return order


def are_shared(*columns: NDArray[Any]) -> NDArray[np.bool_]:
    """Of sorted rows, given as `columns`, which ones equal another."""
    starts = starts_of_runs(*columns)
    alone: NDArray[np.bool_] = starts & np.append(starts[1:], True)
    return ~alone


def starts_of_runs(*columns: NDArray[Any]) -> NDArray[np.bool_]:
    """Of sorted rows, given as `columns`, which ones differ from the row before them. The first always does."""
    starts = np.ones(len(columns[0]), np.bool_)
    if len(starts):
        starts[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return starts
