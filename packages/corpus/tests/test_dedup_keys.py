"""Keyed records on disk: every record meets its equals in one partition, and none is lost."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_corpus.dedup.keys import count_partitions, map_array, read_partition, save_sorted, starts_of_runs

RECORD = np.dtype([("key", "<u8"), ("rest", "<u8"), ("index", "<u4")])
EDGES = [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 62, (1 << 62) - 1]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(EDGES) | st.integers(0, (1 << 64) - 1), st.integers(0, 2)), max_size=40),
    st.sampled_from([1, 2, 4, 16]),
)
def test_partitions_hold_every_record_once(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]], num_partitions: int
) -> None:
    path = tmp_path_factory.mktemp("keys") / "records.npy"
    records = np.array([(key, rest, i) for i, (key, rest) in enumerate(rows)], RECORD)
    save_sorted(path, records)
    parts = [read_partition(path, partition, num_partitions) for partition in range(num_partitions)]
    assert np.concatenate(parts).tolist() == sorted(records.tolist())
    for partition, part in enumerate(parts):
        assert all(int(key) * num_partitions >> 64 == partition for key in part["key"])


def test_the_number_of_partitions_follows_from_bytes_and_memory_alone(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.npy" for i in range(3)]
    for path in paths:
        save_sorted(path, np.zeros(100_000, RECORD))
    counts = [count_partitions(paths, memory) for memory in (1 << 34, 12_000_000, 6_000_000, 1 << 20)]
    assert counts[0] == 1
    assert counts == sorted(counts)
    assert all(count & (count - 1) == 0 for count in counts)
    assert counts[-1] * (1 << 20) >= 3 * 100_000 * RECORD.itemsize


def test_a_file_without_records(tmp_path: Path) -> None:
    save_sorted(tmp_path / "none.npy", np.zeros(0, RECORD))
    assert len(map_array(tmp_path / "none.npy")) == 0
    assert len(read_partition(tmp_path / "none.npy", 3, 4)) == 0


def test_runs_begin_where_any_column_changes() -> None:
    one, two = np.array([1, 1, 1, 2, 2]), np.array([7, 7, 8, 8, 8])
    assert starts_of_runs(one, two).tolist() == [True, False, True, True, False]
    assert starts_of_runs(one[:0], two[:0]).tolist() == []
