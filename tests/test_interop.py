"""Others read what we write: the format's own reader takes the shards of `prep tokenize` as they are."""

import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from tokenmill_tokenizer import Encoder
from tokenmill_tokenizer.decode import Decoder

TEXTS = ["The quick brown fox.", "<|endoftext|>", "日本語 👨‍👩‍👧‍👦\r\n", "x", "It sleeps by the river. " * 200]


@pytest.fixture(scope="module")
def indexed_dataset() -> ModuleType:
    with warnings.catch_warnings():
        # Its import reports missing GPU libraries and uses deprecated parts of torch; neither touches this format.
        warnings.simplefilter("ignore")
        module: ModuleType = pytest.importorskip("megatron.core.datasets.indexed_dataset")
        return module


def test_megatron_core_reads_tokenized_documents(
    indexed_dataset: ModuleType, prep: Callable[..., Any], write_lines: Any, tokenizer: Path, tmp_path: Path
) -> None:
    raw = write_lines("raw.jsonl", TEXTS)
    assert prep("tokenize", raw, "--tokenizer", tokenizer, "--out", tmp_path / "tokens", "--workers", 1).code == 0
    found = indexed_dataset.IndexedDataset(str(tmp_path / "tokens" / "shard-00000"))
    url = str(tokenizer / "tokenizer.json")
    encoder, decoder = Encoder(url), Decoder(url)
    assert len(found) == len(TEXTS)
    assert found.document_indices.tolist() == list(range(len(TEXTS) + 1))
    for number, text in enumerate(TEXTS):
        ids = found[number].tolist()
        assert ids == [*encoder.encode(pa.array([text], pa.large_string()))[0].tolist(), 0]
        assert decoder.decode(ids[:-1]) == text


def test_megatron_core_reads_ids_above_16_bits(
    indexed_dataset: ModuleType,
    prep: Callable[..., Any],
    write_lines: Any,
    word_tokenizer: Callable[..., Path],
    tmp_path: Path,
) -> None:
    raw = write_lines("raw.jsonl", ["w69998 w0", "w5"])
    out = tmp_path / "tokens"
    assert prep("tokenize", raw, "--tokenizer", word_tokenizer(70_000), "--out", out, "--workers", 1).code == 0
    found = indexed_dataset.IndexedDataset(str(out / "shard-00000"))
    assert [found[number].tolist() for number in range(2)] == [[69_998, 0, 69_999], [5, 69_999]]
