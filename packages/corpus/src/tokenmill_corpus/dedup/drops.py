"""Documents found to be duplicates, on disk: a file a task of each method."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.stage import Work
from tokenmill_corpus.dedup.keys import Records, map_array, save_sorted
from tokenmill_corpus.dedup.methods import Method

DROP = np.dtype([("key", "<u8"), ("kept", "<i8"), ("value", "<f8")])
"""`key`: number of the document that goes; `kept`: that of the one that stays in its place, or `UNKNOWN`; `value`: the
Jaccard similarity of both, or NaN where nobody looked."""
UNKNOWN = -1


def save_drops(
    path: Path, dropped: NDArray[np.int64], kept: NDArray[np.int64] | int, value: NDArray[np.float64] | float
) -> None:
    """Write what one task found."""
    records = np.empty(len(dropped), DROP)
    records["key"], records["kept"], records["value"] = dropped, kept, value
    save_sorted(path, records)


def drops_of(work: Work, method: Method) -> Iterator[Records]:
    """What each task of a finished method found, memory-mapped."""
    for path in sorted((work.folder / drops_phase(method)).glob("*.drops.npy")):
        yield map_array(path)


def drops_path(work: Work, method: Method, task: int) -> Path:
    """Where what a task of a method found lies."""
    return work.path(drops_phase(method), f"{task:06d}.drops.npy")


def drops_phase(method: Method) -> str:
    """Name of the phase whose tasks find the drops of a method."""
    return method.value


def dropped_so_far(work: Work, methods: Iterable[Method], num_documents: int) -> NDArray[np.bool_]:
    """Which documents one of `methods` has dropped: a byte each."""
    dropped = np.zeros(num_documents, np.bool_)
    for method in methods:
        for drops in drops_of(work, method):
            dropped[drops["key"]] = True
    return dropped
