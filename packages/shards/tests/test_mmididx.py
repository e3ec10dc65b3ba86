"""Token shards: what is written is read back, and ids that do not fit are refused."""

import os
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_core.errors import InputError
from tokenmill_core.storage import hash_file
from tokenmill_shards import Shard, ShardWriter, dtype_for
from tokenmill_shards.formats.mmididx import sequence_offsets


def flat(lists: list[list[Any]]) -> list[Any]:
    return list(chain.from_iterable(lists))


def write(prefix: Path, documents: list[list[int]], dtype: str = "uint16", vocab_size: int = 60_000) -> Shard:
    with ShardWriter(prefix, dtype, vocab_size) as writer:
        writer.append(np.array(flat(documents), np.int64), np.array([len(d) for d in documents], np.int64))
    return Shard(prefix)


def documents_of(shard: Shard) -> list[list[int]]:
    return [shard.document(number).tolist() for number in range(shard.num_documents)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.lists(st.integers(0, 59_999), max_size=5), max_size=6), max_size=4))
def test_documents_come_back_equal_for_any_batches(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[list[int]]]
) -> None:
    prefix = tmp_path_factory.mktemp("shard") / "a"
    with ShardWriter(prefix, "uint16", 60_000) as writer:
        for batch in batches:
            writer.append(np.array(flat(batch), np.int64), np.array([len(d) for d in batch], np.int64))
    shard = Shard(prefix)
    assert documents_of(shard) == flat(batches)
    assert shard.num_tokens == shard.lengths.sum() == shard.document_offsets[-1]


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(65_535, "uint16"), (65_536, "uint16"), (65_537, "int32"), (70_000, "int32")]
)
def test_the_top_id_is_read_back_in_the_narrowest_type(tmp_path: Path, vocab_size: int, dtype: str) -> None:
    assert dtype_for(vocab_size).name == dtype
    shard = write(tmp_path / "a", [[0, vocab_size - 1], [vocab_size - 1]], dtype, vocab_size)
    assert documents_of(shard) == [[0, vocab_size - 1], [vocab_size - 1]]
    assert shard.dtype.name == dtype


def test_a_vocabulary_that_needs_a_wider_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="65,537 ids does not fit uint16, use int32"):
        ShardWriter(tmp_path / "a", "uint16", 65_537)
    with pytest.raises(InputError, match="float32; use uint16 or int32"):
        ShardWriter(tmp_path / "a", "float32", 100)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [-1, 100, 65_536 + 3, 2**40])
def test_an_id_outside_the_vocabulary_is_refused_by_value_and_document(tmp_path: Path, wrong: int) -> None:
    writer = ShardWriter(tmp_path / "a", "uint16", 100)
    writer.append(np.array([1, 2]), np.array([1, 1]))
    with pytest.raises(InputError, match=rf"document 3 holds the id {wrong}, .* ends at 99"), writer:
        writer.append(np.array([5, wrong, 6]), np.array([1, 2]))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lengths", [[1, 1], [4], [-1, 4], []])
def test_lengths_that_do_not_sum_to_the_ids_are_refused(tmp_path: Path, lengths: list[int]) -> None:
    with ShardWriter(tmp_path / "a", "uint16", 100) as writer:
        with pytest.raises(InputError, match="lengths sum to"):
            writer.append(np.array([1, 2, 3]), np.array(lengths, np.int64))
        with pytest.raises(InputError, match="flat array of integers, got float64"):
            writer.append(np.array([1.5]), np.array([1]))
    assert Shard(tmp_path / "a").num_documents == 0


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64])
def test_offsets_are_right_past_two_and_four_gibibytes(dtype: type[np.integer]) -> None:
    lengths = np.full(5, 1_500_000_000, dtype)
    offsets = sequence_offsets(lengths)
    assert offsets.dtype == np.int64
    assert offsets.tolist() == [1_500_000_000 * i for i in range(6)]


def test_files_carry_the_sizes_hashes_and_counts_of_what_lies_on_disk(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "part.0", "int32", 100_000) as writer:
        writer.append(np.array([1, 2, 99_999]), np.array([2, 0, 1], np.uint32))
    tokens, index = writer.files
    assert [tokens.path, index.path] == ["part.0.bin", "part.0.idx"]
    assert (tokens.documents, tokens.tokens) == (3, 3)
    assert (index.documents, index.tokens) == (None, None)
    for entry in writer.files:
        assert hash_file(str(tmp_path / entry.path)) == (entry.bytes, entry.sha256)
    assert (tokens.bytes, index.bytes) == (12, 42 + 20 * 3)
    assert documents_of(Shard(tmp_path / "part.0")) == [[1, 2], [], [99_999]]


def test_an_error_leaves_the_older_shard_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "a", [[1, 2]])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    writer = ShardWriter(tmp_path / "a", "uint16", 10)
    writer.append(np.array([3]), np.array([1]))
    with pytest.raises(RuntimeError, match="stop"), writer:
        raise RuntimeError("stop")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_failing_to_write_the_index_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / f".a.idx.{os.getpid()}.tmp").mkdir()  # where the index is to be written
    with pytest.raises(IsADirectoryError), ShardWriter(tmp_path / "a", "uint16", 10) as writer:
        writer.append(np.array([3]), np.array([1]))
    assert not list(tmp_path.glob("*.*.bin*")) + list(tmp_path.glob("a.*"))


def test_a_rerun_equals_a_clean_build(tmp_path: Path) -> None:
    write(tmp_path / "once" / "a", [[5, 6, 7], [8]])
    write(tmp_path / "twice" / "a", [[1]])
    write(tmp_path / "twice" / "a", [[5, 6, 7], [8]])
    for name in ("a.bin", "a.idx"):
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


def test_a_document_number_outside_the_shard_is_an_index_error(tmp_path: Path) -> None:
    shard = write(tmp_path / "a", [[1]])
    with pytest.raises(IndexError, match="1 documents, there is no number 1"):
        shard.document(1)
    with pytest.raises(IndexError):
        shard.document(-1)
