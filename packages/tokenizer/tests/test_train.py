"""Training: the same tokenizer from the same documents, however they come; and honest when it cannot do as asked."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from tokenmill_core.build import build_stage
from tokenmill_core.errors import InputError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest_io import load_manifest, verify_files
from tokenmill_core.stage import Work
from tokenmill_tokenizer.open import load
from tokenmill_tokenizer.train import STAGE
from tokenmill_tokenizer.train_config import TrainTokenizerConfig

Train = Callable[..., Any]
TIED = ["ab cd ef gh ij kl mn op", "ba dc fe hg ji lk nm po", "zyx wvu tsr"] * 4
"""Every pair has the same count as many others."""


@pytest.mark.parametrize("split", ["gpt2", "cl100k", "o200k"])
@pytest.mark.parametrize("texts", ["tied", "prose"])
def test_the_order_of_the_documents_does_not_count(train: Train, prose: list[str], split: str, texts: str) -> None:
    documents = TIED if texts == "tied" else prose
    expected = train(documents, split=split).json
    for seed in range(3):
        assert train(random.Random(seed).sample(documents, len(documents)), split=split).json == expected
    assert train(documents[::-1], split=split).json == expected


@pytest.mark.parametrize(
    "environment", [{"PYTHONHASHSEED": "7"}, {"RAYON_NUM_THREADS": "1"}, {"RAYON_NUM_THREADS": "8"}]
)
def test_neither_hash_seed_nor_threads_count(train: Train, tmp_path: Path, environment: dict[str, str]) -> None:
    expected = train(TIED)
    raw = tmp_path / "raw.jsonl"
    raw.write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in TIED))
    out = tmp_path / "tokenizer"
    code = "from tokenmill_core.cli import main; main()"
    arguments = ["train-tokenizer", str(raw), "--vocab-size", "320", "--out", str(out)]
    subprocess.run([sys.executable, "-c", code, *arguments], env=os.environ | environment, check=True)
    assert (out / "tokenizer.json").read_bytes() == expected.json
    assert load_manifest(str(out)).manifest.digest == expected.manifest.digest


def test_ties_go_to_the_pair_with_the_smaller_ids(train: Train) -> None:
    model = orjson.loads(train(["zz yy xx ww vv"] * 3, split="gpt2").json)["model"]
    assert [pair if isinstance(pair, list) else pair.split() for pair in model["merges"]][:2] == [
        ["v", "v"],
        ["w", "w"],
    ]


def test_ids_begin_with_the_special_tokens_and_all_bytes(train: Train, prose: list[str]) -> None:
    result = train(prose, special_tokens=("<|pad|>", "<|user|>"))
    vocabulary = load(str(result.path)).get_vocab(with_added_tokens=True)
    assert result.manifest.special_tokens == {"<|endoftext|>": 0, "<|pad|>": 1, "<|user|>": 2}
    assert {token: vocabulary[token] for token in result.manifest.special_tokens} == result.manifest.special_tokens
    assert sorted(vocabulary.values()) == list(range(320))
    assert all(len(token) == 1 for token, id in vocabulary.items() if 3 <= id < 259)
    assert result.manifest.end_of_document == "<|endoftext|>"
    verify_files(load_manifest(str(result.folder)))


def test_too_little_data_gives_a_smaller_vocabulary_and_says_so(train: Train, caplog: pytest.LogCaptureFixture) -> None:
    result = train(["aab aab"], vocab_size=5000)
    assert 257 < result.manifest.vocab_size < 300
    assert load(str(result.path)).get_vocab_size() == result.manifest.vocab_size
    assert "vocab_size: 5,000 asked for, 259 found" in caplog.text
    assert result.manifest.config["vocab_size"] == 5000


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab_size": 258, "special_tokens": ("<|a|>", "<|b|>")}, "vocab_size: 258 is less.*at least 259"),
        ({"vocab_size": 100}, "vocab_size"),
        ({"vocab_size": 300, "special_tokens": ("<|a|>", "<|a|>")}, "must be distinct"),
        ({"vocab_size": 300, "special_tokens": ("<|endoftext|>",)}, "must be distinct"),
        ({"vocab_size": 300, "special_tokens": ("",)}, "special_tokens.0"),
        ({"vocab_size": 300, "padding": "<|endoftext|>"}, "must be distinct"),
        ({"vocab_size": 300, "reserved_tokens": 44}, "at least 301"),
        ({"vocab_size": 300, "pattern": "("}, "no regular expression"),
        ({"vocab_size": 300, "special_tokens": ("PAD",)}, r"'PAD' is one piece.*<\|PAD\|>"),
        ({"vocab_size": 300, "end_of_document": "\u00a7"}, r"'§' is one piece"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_reading(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainTokenizerConfig(**settings)


def test_the_smallest_vocabulary_is_bytes_and_special_tokens(train: Train) -> None:
    assert train(["some text"], vocab_size=257).manifest.vocab_size == 257


def test_no_documents_are_refused_and_nothing_is_published(train: Train, tmp_path: Path) -> None:
    raw = tmp_path / "raw.jsonl"
    raw.write_bytes(b"\n\n")
    stage = STAGE.build(TrainTokenizerConfig(vocab_size=300), [str(raw)], None)
    with pytest.raises(InputError, match=r"no documents to train on.*--text-field"):
        build_stage(stage, str(tmp_path / "out"), LocalExecutor(1))
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_rows_that_gave_no_text_are_accounted_for(tmp_path: Path) -> None:
    raw = tmp_path / "raw.jsonl"
    raw.write_bytes(b'{"text":"good text"}\n42\n{"text":""}\n')
    stage = STAGE.build(TrainTokenizerConfig(vocab_size=300), [str(raw)], None)
    manifest = build_stage(stage, str(tmp_path / "out"), LocalExecutor(1)).loaded.manifest
    assert (manifest.counts.input_documents, manifest.counts.documents, manifest.counts.bytes) == (3, 1, 9)
    assert {row.reason: row.documents for row in manifest.ledger} == {"empty_text": 1, "not_an_object": 1}
    assert len((tmp_path / "out" / "rejects.jsonl").read_bytes().splitlines()) == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"split": "gpt2"},
        {"split": "llama3", "digit_group": 2},
        {"split": "o200k", "beginning_of_document": "<|begin|>", "reserved_tokens": 3},
        {"split": "qwen2", "min_frequency": 3},
        {"pattern": r"\p{L}{1,4}|\d"},
    ],
)
def test_the_trainer_of_tokenizers_gives_the_same_dataset(
    train: Train, prose: list[str], settings: dict[str, Any]
) -> None:
    ours = train(prose, vocab_size=400, sample_bytes=3000, **settings)
    theirs = train(prose, vocab_size=400, sample_bytes=3000, trainer="tokenizers", **settings)
    files = sorted(path.name for path in ours.folder.iterdir())
    assert "tokenizer.json" in files
    for name in files:
        assert (ours.folder / name).read_bytes() == (theirs.folder / name).read_bytes(), name


@pytest.mark.parametrize("trainer", ["native", "tokenizers"])
def test_a_special_token_that_text_merges_to_is_refused(train: Train, trainer: str) -> None:
    """Cut off by itself, but within a longer piece: o200k leaves contractions whole."""
    texts = ["n's n't n're n've n'm n'll n'd"] * 100
    with pytest.raises(InputError, match=r"special token \"n'\" is what text of the sample merges to"):
        train(texts, vocab_size=290, split="o200k", special_tokens=("n'",), trainer=trainer)


def test_a_long_run_is_no_special_case(train: Train) -> None:
    manifest = train(["x" * 100_000, "word"], vocab_size=300).manifest
    assert manifest.vocab_size < 280


@pytest.mark.parametrize("workers", [1, 8])
def test_neither_workers_nor_how_files_are_cut_count(
    train: Train, tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = train(TIED)
    folder = tmp_path / "raw"
    folder.mkdir()
    for number, text in enumerate(reversed(TIED)):
        (folder / f"{number:02d}.jsonl").write_bytes(orjson.dumps({"text": text}) + b"\n")
    monkeypatch.setattr("tokenmill_core.sources.group_pieces", lambda pieces, *_: [[piece] for piece in pieces])
    stage = STAGE.build(TrainTokenizerConfig(vocab_size=320), [str(folder)], None)
    assert len(stage.phases()[0].plan(Work(tmp_path))) == len(TIED)
    build_stage(stage, str(tmp_path / "out"), LocalExecutor(workers))
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == expected.json


def test_special_tokens_come_first_in_the_order_of_the_settings(train: Train, prose: list[str]) -> None:
    result = train(
        prose,
        beginning_of_document="<|begin|>",
        padding="<|pad|>",
        chat="chatml",
        fill_in_the_middle=True,
        special_tokens=("<|mine|>",),
        reserved_tokens=2,
    )
    fim = ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"]
    expected = ["<|endoftext|>", "<|begin|>", "<|pad|>", "<|im_start|>", "<|im_end|>", *fim, "<|mine|>"]
    expected += ["<|reserved_0|>", "<|reserved_1|>"]
    assert list(result.manifest.special_tokens) == expected
    assert [load(str(result.path)).token_to_id(token) for token in expected] == list(range(12))
    assert (result.manifest.beginning_of_document, result.manifest.padding) == ("<|begin|>", "<|pad|>")


def test_transformers_loads_the_dataset_and_its_chat_format(train: Train, prose: list[str]) -> None:
    from transformers import AutoTokenizer

    for chat, turn in (
        ("chatml", "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"),
        (
            "llama3",
            "<|start_header_id|>user<|end_header_id|>\n\nHello!<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
    ):
        result = train(prose, chat=chat, padding="<|pad|>")
        loaded = AutoTokenizer.from_pretrained(str(result.folder))
        assert (loaded.eos_token, loaded.pad_token) == ("<|endoftext|>", "<|pad|>")
        messages = [{"role": "user", "content": "Hello!"}]
        assert loaded.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == turn
        ids = loaded.encode(turn)
        assert ids == load(str(result.path)).encode(turn).ids
        assert result.manifest.special_tokens[turn.partition(">")[0] + ">"] == ids[0]


def test_tiktoken_reads_the_ranks(train: Train, prose: list[str]) -> None:
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe

    result = train(prose, split="o200k", padding="<|pad|>")
    settings = orjson.loads((result.folder / "tokenizer.tiktoken.json").read_bytes())
    ranks = load_tiktoken_bpe(str(result.folder / "tokenizer.tiktoken"))
    encoding = tiktoken.Encoding("own", mergeable_ranks=ranks, **settings)
    for text in prose:
        assert encoding.encode(text) == load(str(result.path)).encode(text).ids
    assert encoding.encode("<|pad|>", allowed_special="all") == [1]


@pytest.mark.parametrize(("multiple", "padded"), [(1, 320), (64, 320), (128, 384), (1000, 1000)])
def test_the_vocabulary_is_padded_for_the_model_and_stated_apart(
    train: Train, prose: list[str], multiple: int, padded: int
) -> None:
    manifest = train(prose, vocab_size=320, pad_to_multiple=multiple).manifest
    assert (manifest.vocab_size, manifest.padded_vocab_size) == (320, padded)
