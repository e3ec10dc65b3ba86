"""Others read what we write, and we what they wrote: with the real packages, through the commands."""

import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tokenmill_core.manifest_io import load_manifest
from tokenmill_shards import Shard
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


def documents_of(folder: Path) -> list[list[int]]:
    shards = [Shard(folder / name) for name in load_manifest(str(folder)).manifest.shards]
    return [shard.document(number).tolist() for shard in shards for number in range(shard.num_documents)]


def test_a_dataset_by_megatrons_builder_is_imported_and_its_samples_lead_back_to_it(
    indexed_dataset: ModuleType, prep: Callable[..., Any], tokenizer: Path, tmp_path: Path
) -> None:
    builder = indexed_dataset.IndexedDatasetBuilder(str(tmp_path / "text_document.bin"), dtype=np.uint16)
    builder.add_document(np.array([5, 6, 7, 8, 0]), [2, 3])
    builder.add_document(np.array([9, 0]), [2])
    builder.finalize(str(tmp_path / "text_document.idx"))
    arguments = ("--format", "megatron", "--tokenizer", tokenizer, "--out", tmp_path / "tokens", "--workers", 1)
    assert prep("import-tokens", tmp_path / "text_document.bin", *arguments).code == 0
    assert documents_of(tmp_path / "tokens") == [[5, 6, 7, 8, 0], [9, 0]]
    assert prep("verify", tmp_path / "tokens").code == 0
    mixture = tmp_path / "mixture.json"
    assert prep("mix", f"old={tmp_path / 'tokens'}", "--out", mixture).code == 0
    traced = prep("trace", mixture, "--sample", 0, "--sequence-length", 6, "--json")
    assert traced.code == 0
    assert "text_document/text_document.bin" in traced.out


def test_what_datatrove_tokenized_is_what_we_tokenize(
    prep: Callable[..., Any], write_lines: Any, tokenizer: Path, tmp_path: Path
) -> None:
    steps = pytest.importorskip("datatrove.pipeline.tokens")
    data = pytest.importorskip("datatrove.data")
    url = str(tokenizer / "tokenizer.json")
    texts = [text for text in TEXTS if text != "<|endoftext|>"]  # special there, text here
    step = steps.DocumentTokenizer(
        str(tmp_path / "theirs"), url, eos_token="<|endoftext|>", shuffle_documents=False, save_loss_metadata=True
    )
    documents = [data.Document(text=text, id=str(number)) for number, text in enumerate(texts)]
    documents[0].metadata["no_loss_ranges"] = [(0, 3)]
    step.run(iter(documents))
    arguments = ("--format", "datatrove", "--tokenizer", tokenizer, "--workers", 1, "--out")
    assert prep("import-tokens", tmp_path / "theirs", *arguments, tmp_path / "imported").code == 0
    raw = write_lines("raw.jsonl", texts)
    assert prep("tokenize", raw, "--tokenizer", tokenizer, "--out", tmp_path / "tokens", "--workers", 1).code == 0
    assert documents_of(tmp_path / "imported") == documents_of(tmp_path / "tokens")
    manifest = load_manifest(str(tmp_path / "imported")).manifest
    assert (manifest.dtype, manifest.end_of_document_id, manifest.loss_mask) == ("uint16", 0, True)
    assert prep("verify", tmp_path / "imported").code == 0
    (theirs,) = (tmp_path / "theirs").glob("*.ds")
    assert theirs.samefile(tmp_path / "imported" / "shard-00000.bin")
