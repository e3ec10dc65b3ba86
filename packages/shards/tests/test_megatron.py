"""Megatron's own reader and writer of the format agree with ours, byte for byte."""

import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from tokenmill_core.errors import VerificationError
from tokenmill_shards import Shard, ShardWriter
from tokenmill_shards.formats.mmididx import write_index


@pytest.fixture(scope="module")
def megatron() -> ModuleType:
    with warnings.catch_warnings():
        # Its import reports missing GPU libraries and uses deprecated parts of torch; neither touches this format.
        warnings.simplefilter("ignore")
        return pytest.importorskip("megatron.core.datasets.indexed_dataset")


@pytest.fixture(params=["uint16", "int32"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def documents(dtype: str) -> list[NDArray[np.int64]]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, np.iinfo(dtype).max + 1, length) for length in (3, 1, 0, 700, 12)]


def megatron_shard(
    megatron: ModuleType, prefix: Path, dtype: str, documents: list[list[NDArray[np.int64]]]
) -> tuple[bytes, bytes]:
    builder = megatron.IndexedDatasetBuilder(str(prefix) + ".bin", dtype=np.dtype(dtype).type)
    for sequences in documents:
        builder.add_document(np.concatenate(sequences), [sequence.size for sequence in sequences])
    builder.finalize(str(prefix) + ".idx")
    return prefix.with_suffix(".bin").read_bytes(), prefix.with_suffix(".idx").read_bytes()


def test_both_write_the_same_bytes(
    megatron: ModuleType, tmp_path: Path, dtype: str, documents: list[NDArray[np.int64]]
) -> None:
    with ShardWriter(tmp_path / "ours", dtype, int(np.iinfo(dtype).max) + 1) as writer:
        writer.append(np.concatenate(documents), [document.size for document in documents])
    theirs = megatron_shard(megatron, tmp_path / "theirs", dtype, [[document] for document in documents])
    assert ((tmp_path / "ours.bin").read_bytes(), (tmp_path / "ours.idx").read_bytes()) == theirs


def test_nothing_at_all_is_the_same_too(megatron: ModuleType, tmp_path: Path, dtype: str) -> None:
    with ShardWriter(tmp_path / "ours", dtype, 300):
        pass
    theirs = megatron_shard(megatron, tmp_path / "theirs", dtype, [])
    assert ((tmp_path / "ours.bin").read_bytes(), (tmp_path / "ours.idx").read_bytes()) == theirs


def test_both_index_documents_of_several_sequences_alike(
    megatron: ModuleType, tmp_path: Path, dtype: str, documents: list[NDArray[np.int64]]
) -> None:
    groups = [documents[:3], documents[3:4], documents[4:]]
    tokens, index = megatron_shard(megatron, tmp_path / "theirs", dtype, groups)
    (tmp_path / "ours.bin").write_bytes(tokens)
    lengths = np.array([document.size for document in documents])
    write_index(tmp_path / "ours", np.dtype(dtype), lengths, np.array([0, 3, 4, 5]))
    assert (tmp_path / "ours.idx").read_bytes() == index
    dataset = megatron.IndexedDataset(str(tmp_path / "ours"))
    assert dataset.document_indices.tolist() == [0, 3, 4, 5]
    assert all((dataset[number] == document).all() for number, document in enumerate(documents))


def test_megatron_reads_ours(
    megatron: ModuleType, tmp_path: Path, dtype: str, documents: list[NDArray[np.int64]]
) -> None:
    with ShardWriter(tmp_path / "ours", dtype, int(np.iinfo(dtype).max) + 1) as writer:
        writer.append(np.concatenate(documents), [document.size for document in documents])
    dataset = megatron.IndexedDataset(str(tmp_path / "ours"))
    assert len(dataset) == len(documents)
    assert all((dataset[number] == document).all() for number, document in enumerate(documents))
    assert dataset.document_indices.tolist() == list(range(len(documents) + 1))


def test_ours_reads_megatrons_documents_of_several_sequences(
    megatron: ModuleType, tmp_path: Path, dtype: str, documents: list[NDArray[np.int64]]
) -> None:
    groups = [documents[:2], documents[2:]]
    megatron_shard(megatron, tmp_path / "theirs", dtype, groups)
    shard = Shard(tmp_path / "theirs")
    assert shard.lengths.tolist() == [document.size for document in documents]
    assert shard.num_documents == 2
    assert all((shard.document(n) == np.concatenate(group)).all() for n, group in enumerate(groups))


@pytest.mark.parametrize(("other", "code"), [("uint8", 1), ("int8", 2), ("int16", 3), ("int64", 5), ("float32", 7)])
def test_token_types_that_no_tokenizer_needs_are_refused(
    megatron: ModuleType, tmp_path: Path, other: str, code: int
) -> None:
    megatron_shard(megatron, tmp_path / "theirs", other, [[np.arange(5)]])
    with pytest.raises(VerificationError, match=rf"theirs\.idx .*token type code {code}, needs 8 \(uint16\) or 4"):
        Shard(tmp_path / "theirs")
