"""`prep tokenize`, `merge` and `trace` as commands: exit codes, what they print, and what they refuse."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Prep = Callable[..., Any]


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "raw.jsonl"
    path.write_text(
        "".join(json.dumps({"id": f"d{i}", "text": f"The quick brown fox {i}. " * 9}) + "\n" for i in range(9))
    )
    return path


@pytest.fixture
def tokens(prep: Prep, raw: Path, tokenizer: Path, tmp_path: Path) -> Path:
    assert prep("tokenize", raw, "--tokenizer", tokenizer, "--out", tmp_path / "tokens", "--workers", 1).code == 0
    return tmp_path / "tokens"


def test_tokenize_says_what_it_made_and_is_up_to_date_the_second_time(
    prep: Prep, raw: Path, tokenizer: Path, tmp_path: Path
) -> None:
    arguments = ("tokenize", raw, "--tokenizer", tokenizer, "--out", tmp_path / "t", "--workers", 1)
    first = prep(*arguments)
    assert first.code == 0
    assert "9 of 9 documents" in first.out
    before = (tmp_path / "t" / "manifest.json").stat().st_mtime_ns
    again = prep(*arguments)
    assert again.out.startswith("up to date: tokens raw")
    assert (tmp_path / "t" / "manifest.json").stat().st_mtime_ns == before
    as_json = json.loads(prep(*arguments, "--json").out)
    assert (as_json["up_to_date"], as_json["counts"]["documents"]) == (True, 9)


def test_tokenize_leaves_documents_open_on_request(prep: Prep, raw: Path, tokenizer: Path, tmp_path: Path) -> None:
    arguments = ("tokenize", raw, "--tokenizer", tokenizer, "--out", tmp_path / "t", "--workers", 1, "--json")
    assert json.loads(prep(*arguments).out)["end_of_document_id"] == 0
    opened = json.loads(prep(*arguments, "--no-end-of-document").out)
    assert opened["end_of_document_id"] is None
    assert not opened["up_to_date"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--end-of-document", "<|stop|>"), 1, "no token '<|stop|>'"),
        (("--tokenizer", "nowhere.json"), 1, "no such file or folder: 'nowhere.json'"),
        (("--set", "reader.text_feld=x"), 2, "unknown setting 'reader.text_feld'; did you mean 'text_field'?"),
        (("--workers", "0"), 2, "--workers"),
        (("--text-field", "body"), 1, "the keys seen are 'id', 'text'"),
        (("--shard-size", "big"), 2, "--shard-size 'big': expected a number of bytes such as 64MB"),
        (("--set", "shard_bytes=0"), 2, "shard_bytes"),
        (("--engine", "fast"), 2, "--engine"),
        (("--loss-mask", "id"), 2, "'id' cannot hold loss masks"),
        (("--loss-mask", "answers"), 1, "--loss-mask answers: no document has a value there"),
        (("--beginning-of-document",), 1, "no token to begin a document with"),
        (("--beginning-of-document", "<s>"), 1, "no token '<s>' to begin a document with"),
        (("--set", "beginning_of_document=<s>"), 2, "but prepend_beginning_of_document is false"),
    ],
)
def test_tokenize_refuses(
    prep: Prep, raw: Path, tokenizer: Path, tmp_path: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    outcome = prep("tokenize", raw, "--tokenizer", tokenizer, "--out", tmp_path / "t", "--workers", 1, *options)
    assert outcome.code == code
    assert message in outcome.err
    assert not (tmp_path / "t" / "manifest.json").exists()


def test_tokenize_takes_everything_by_option(prep: Prep, raw: Path, tokenizer: Path, tmp_path: Path) -> None:
    rows = [{"text": f"The fox {i}. <|endoftext|>", "answers": [[0, 3]], "url": f"u{i}"} for i in range(9)]
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--engine", "tokenizers", "--allow-special", "--beginning-of-document", "<|endoftext|>")
    options += ("--carry", "url", "--loss-mask", "answers", "--shard-size", "0.2kB", "--workers", 1, "--json")
    made = json.loads(prep("tokenize", raw, "--tokenizer", tokenizer, "--out", tmp_path / "t", *options).out)
    assert (made["beginning_of_document_id"], made["end_of_document_id"], made["loss_mask"]) == (0, 0, True)
    assert set(made["engines"]) == set(made["shards"])
    assert {engine.split()[0] for engine in made["engines"].values()} == {"tokenizers"}
    assert (made["config"]["shard_bytes"], made["config"]["allow_special"]) == (200, True)
    assert len(made["shards"]) > 1


def test_tokenize_shows_examples(prep: Prep) -> None:
    shown = prep("tokenize", "--help").out
    for option in ("--engine", "--shard-size 1GB", "--loss-mask answers", "--beginning-of-document '<s>'", "--carry"):
        assert option in shown


def test_merge_by_command(prep: Prep, tokens: Path, raw: Path, tokenizer: Path, tmp_path: Path) -> None:
    prep("tokenize", raw, "--tokenizer", tokenizer, "--out", tmp_path / "b", "--no-end-of-document", "--workers", 1)
    merged = prep("merge", tokens, tokens, "--out", tmp_path / "merged", "--workers", 1, "--json")
    assert json.loads(merged.out)["counts"]["documents"] == 18
    refused = prep("merge", tokens, tmp_path / "b", "--out", tmp_path / "other")
    assert refused.code == 1
    assert "end_of_document_id" in refused.err


def test_trace_names_the_documents_of_a_sample(prep: Prep, tokens: Path, raw: Path, tmp_path: Path) -> None:
    prep("mix", f"web={tokens}", "--out", tmp_path / "m.json")
    arguments = ("trace", tmp_path / "m.json", "--sample", 3, "--sequence-length", 64)
    documents = json.loads(prep(*arguments, "--json").out)
    assert documents[0]["first_token"] == 0
    assert documents[-1]["last_token"] == 64
    lines = raw.read_text().splitlines()
    for document in documents:
        assert document["file"] == "raw/raw.jsonl"
        assert json.loads(lines[document["row"] - 1])["id"] == document["id"]
    shown = prep(*arguments)
    assert shown.code == 0
    assert all(document["id"] in shown.out for document in documents)


def test_trace_refuses_what_cannot_be_traced(prep: Prep, tokens: Path, tmp_path: Path) -> None:
    prep("mix", f"web={tokens}", "--out", tmp_path / "m.json")
    mixture = tmp_path / "m.json"
    assert prep("trace", mixture, "--sample", -1, "--sequence-length", 64).code == 2
    far = prep("trace", mixture, "--sample", 10**30, "--sequence-length", 64)
    assert far.code == 2
    assert "--sample" in far.err
    assert prep("trace", mixture, "--sample", 2**53 - 1, "--sequence-length", 64, "--json").code == 0
    long = prep("trace", mixture, "--sample", 0, "--sequence-length", 10**6)
    assert long.code == 1
    assert "source web has" in long.err
    assert prep("trace", tokens, "--sample", 0, "--sequence-length", 64).code == 1
