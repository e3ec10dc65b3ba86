"""Raw files as people really have them, from the command line: what becomes a document, and what is said of others."""

import base64
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

Prep = Callable[..., Any]
SEVEN_LINES = (
    b'{"text":"one good document","id":"a"}\n\n42\n"context"\n["text"]\n{"text":\n{"text":"another good one"}\n'
)
BOM = b"\xef\xbb\xbf"


@pytest.fixture
def clean(prep: Prep, tmp_path: Path, dataset: Callable[..., Any]) -> Callable[..., Any]:
    """clean(*inputs, out="clean"): the dataset of `prep clean` with a threshold of one word, which must succeed."""

    def run(*arguments: object, out: str = "clean") -> Any:
        outcome = prep("clean", *arguments, "--min-words", 1, "--out", tmp_path / out, "--workers", 1)
        assert outcome.code == 0, outcome.err
        return dataset(out)

    return run


@pytest.fixture
def refused(prep: Prep, tmp_path: Path, tokenizer: Path, dataset: Callable[..., Any]) -> Callable[..., str]:
    """refused(*inputs): what both commands that meet raw files say when they fail with 1 and publish nothing."""

    def run(*arguments: object) -> str:
        outcomes = [
            prep("clean", *arguments, "--out", tmp_path / "refused-clean", "--workers", 1),
            prep("tokenize", *arguments, "--tokenizer", tokenizer, "--out", tmp_path / "refused", "--workers", 1),
        ]
        assert [outcome.code for outcome in outcomes] == [1, 1]
        assert not dataset("refused-clean").exists
        assert not dataset("refused").exists
        messages = {outcome.err for outcome in outcomes}
        assert len(messages) == 1, "both say the same"
        message = str(messages.pop())
        assert message.startswith("Error: ")
        assert "Traceback" not in message
        return message

    return run


# Lines that are no documents


def test_lines_that_are_no_documents_cost_themselves_and_are_written_down(
    clean: Callable[..., Any], prep: Prep, tmp_path: Path, tokenizer: Path, dataset: Callable[..., Any]
) -> None:
    (tmp_path / "seven.jsonl").write_bytes(SEVEN_LINES)
    result = clean(tmp_path / "seven.jsonl")
    assert [(row["text"], row["row"], row["id"]) for row in result.rows] == [
        ("one good document", 1, "a"),
        ("another good one", 7, None),
    ]
    prep("tokenize", tmp_path / "seven.jsonl", "--tokenizer", tokenizer, "--out", tmp_path / "tokens", "--workers", 1)
    for made in (result, dataset("tokens")):
        assert made.ledger == {"invalid_json": 1, "not_an_object": 3}
        assert made.manifest.counts.documents == 2
        assert made.manifest.notes["blank_lines"] == 1
        assert [(row["file"], row["row"], row["reason"], row["raw"]) for row in made.rejects] == [
            ("seven/seven.jsonl", 3, "not_an_object", "42"),
            ("seven/seven.jsonl", 4, "not_an_object", '"context"'),
            ("seven/seven.jsonl", 5, "not_an_object", '["text"]'),
            ("seven/seven.jsonl", 6, "invalid_json", '{"text":'),
        ]


def test_strict_stops_at_the_first_such_line(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "seven.jsonl").write_bytes(SEVEN_LINES)
    assert "seven.jsonl:3: not_an_object, the row begins b'42'" in refused(tmp_path / "seven.jsonl", "--strict")


# Byte order marks and line ends


def test_marks_and_line_ends_change_nothing(clean: Callable[..., Any], tmp_path: Path) -> None:
    lines = [json.dumps({"text": text}).encode() for text in ("first one", "second\rone", "third ünë")]
    variants = {
        "plain": b"\n".join(lines) + b"\n",
        "marked": BOM + b"\r\n".join(lines) + b"\r\n",
        "unended": b"\n".join(lines),
    }
    parts = {}
    for name, content in variants.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.jsonl").write_bytes(content)
        result = clean(tmp_path / name / "x.jsonl", out=f"{name}-clean")
        assert result.texts == ["first one", "second\rone", "third ünë"]
        parts[name] = result.manifest.files[0].sha256
    assert len(set(parts.values())) == 1


def test_a_mark_in_the_middle_of_a_file_is_taken_out_and_noted(clean: Callable[..., Any], tmp_path: Path) -> None:
    one = BOM + b'{"text":"first one"}\n'
    (tmp_path / "joined.jsonl").write_bytes(one + one.replace(b"first", b"second"))
    result = clean(tmp_path / "joined.jsonl")
    assert result.texts == ["first one", "second one"]
    assert result.manifest.notes == {"byte_order_marks": 2}


# Compressed files


def line(text: str) -> bytes:
    return json.dumps({"text": text}).encode() + b"\n"


def test_all_members_and_frames_of_a_file_are_read(clean: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(line("gzip one")) + gzip.compress(line("gzip two")))
    compress = zstandard.ZstdCompressor().compress
    (folder / "b.jsonl.zst").write_bytes(compress(line("zstd one")) + compress(line("zstd two")))
    assert clean(folder).texts == ["gzip one", "gzip two", "zstd one", "zstd two"]


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_file_cut_short_is_an_error_that_names_it(refused: Callable[..., str], tmp_path: Path, suffix: str) -> None:
    text = b"".join(line(f"document {number} {os.urandom(20).hex()}") for number in range(2000))
    whole = gzip.compress(text) if suffix == "gz" else zstandard.ZstdCompressor().compress(text)
    path = tmp_path / f"cut.jsonl.{suffix}"
    path.write_bytes(whole[: int(len(whole) * 0.6)])
    message = refused(path)
    assert f"cannot read {path}" in message
    assert "fetch the file again or leave it out" in message


def test_a_name_that_promises_compression_is_only_a_promise(
    clean: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "plain.jsonl.gz").write_bytes(line("not compressed at all"))
    (tmp_path / "zstd.jsonl.gz").write_bytes(zstandard.ZstdCompressor().compress(line("in truth zstd")))
    (tmp_path / "gzip.jsonl").write_bytes(gzip.compress(line("in truth gzip")))
    result = clean(*(tmp_path / name for name in ("plain.jsonl.gz", "zstd.jsonl.gz", "gzip.jsonl")))
    assert sorted(result.texts) == ["in truth gzip", "in truth zstd", "not compressed at all"]
    assert result.manifest.notes == {"misnamed_compression": 3}
    assert "plain.jsonl.gz is read as not compressed" in caplog.text


def test_a_file_of_no_bytes_is_noted_and_gives_nothing(clean: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl.gz").write_bytes(b"")
    (tmp_path / "full.jsonl").write_bytes(line("a document"))
    result = clean(tmp_path / "empty.jsonl.gz", tmp_path / "full.jsonl")
    assert result.texts == ["a document"]
    assert result.manifest.notes == {"empty_files": 1}


# Characters that are none


def test_half_surrogates_and_nulls_are_replaced_and_counted_and_no_stage_minds(
    clean: Callable[..., Any], prep: Prep, tmp_path: Path, dataset: Callable[..., Any]
) -> None:
    rows = [
        rb'{"text":"lone \ud83d half"}',
        rb'{"text":"a pair \ud83d\udc4d whole"}',
        rb'{"text":"a\u0000b"}',
        rb'{"text":"literal \\u0000 stays"}',
    ]
    (tmp_path / "odd.jsonl").write_bytes(b"\n".join(rows))
    expected = ["lone \ufffd half", "a pair 👍 whole", "a\ufffdb", r"literal \u0000 stays"]
    result = clean(tmp_path / "odd.jsonl")
    assert result.texts == expected
    assert result.manifest.notes == {"repaired_characters": 2}
    out = tmp_path / "tok"
    assert prep("train-tokenizer", result.folder, "--vocab-size", 300, "--out", out, "--workers", 1).code == 0
    tokens = prep("tokenize", result.folder, "--tokenizer", out, "--out", tmp_path / "tokens", "--workers", 1)
    assert tokens.code == 0
    assert dataset("tokens").manifest.counts.documents == 4


def test_a_byte_of_another_encoding_costs_its_line(clean: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "latin.jsonl").write_bytes(line("before") + '{"text":"caf\u00e9"}\n'.encode("latin-1") + line("after"))
    result = clean(tmp_path / "latin.jsonl")
    assert result.texts == ["before", "after"]
    assert [(row["row"], row["reason"]) for row in result.rejects] == [(2, "invalid_utf8")]
    assert base64.b64decode(result.rejects[0]["raw_base64"]) == '{"text":"caf\u00e9"}'.encode("latin-1")


# The text field


def test_absent_null_empty_blank_and_other_values_are_told_apart(clean: Callable[..., Any], write_lines: Any) -> None:
    values: list[Any] = [None, "", "   ", 123, ["a"]]
    raw = write_lines("odd.jsonl", [{"id": 1}, *({"text": value} for value in values), {"body": "x"}, "a good text"])
    result = clean(raw)
    assert result.ledger == {
        "missing_text": 2,
        "null_text": 1,
        "empty_text": 1,
        "blank_text": 1,
        "non_string_text": 2,
    }
    assert result.texts == ["a good text"]
    assert len(result.rejects) == 7


def test_a_file_with_another_key_is_refused_with_the_keys_it_has(
    refused: Callable[..., str], clean: Callable[..., Any], write_lines: Any
) -> None:
    raw = write_lines("other.jsonl", [{"content": f"text {i}", "url": "u"} for i in range(3)])
    message = refused(raw)
    assert "other.jsonl: no object has the text field 'text'; the keys seen are 'content', 'url'" in message
    assert "--text-field" in message
    assert clean(raw, "--text-field", "content").texts == ["text 0", "text 1", "text 2"]


# Columns that change their type


def test_values_of_changing_types_elsewhere_do_not_matter(clean: Callable[..., Any], write_lines: Any) -> None:
    metas: list[Any] = [None] * 19_998 + [{"a": 1}, "x"]
    rows = [{"text": f"document {i}", "meta": m, "id": i if i % 2 else str(i)} for i, m in enumerate(metas)]
    one = write_lines("one.jsonl", rows)
    two = write_lines("two.jsonl", [{"extra": [1], "text": f"more {i}", "other": {"b": None}} for i in range(3)])
    result = clean(two, one)
    assert result.manifest.counts.documents == 20_003
    assert result.ledger == {}
    assert [row["id"] for row in result.rows[:3]] == ["0", "1", "2"]
    assert clean(one, two, out="swapped").content == result.content


# Paths


def test_odd_characters_in_paths_are_taken_literally(
    clean: Callable[..., Any], write_lines: Any, tmp_path: Path
) -> None:
    raw = write_lines("my data [v1]/.cache/ü/a.jsonl", ["found it"])
    for number, argument in enumerate((raw, raw.parent, raw.parent / "*.jsonl", tmp_path / "my data [v1]")):
        assert clean(argument, out=f"clean-{number}").texts == ["found it"]


def test_what_leads_nowhere_is_named(refused: Callable[..., str], write_lines: Any, tmp_path: Path) -> None:
    present = write_lines("a.jsonl", ["here"])
    assert f"no file matches '{tmp_path}/*.nothing'" in refused(tmp_path / "*.nothing")
    message = refused(present, tmp_path / "missing.jsonl", tmp_path / "gone-*.jsonl")
    assert f"no such file or folder: '{tmp_path}/missing.jsonl'" in message
    assert f"no file matches '{tmp_path}/gone-*.jsonl'" in message


def test_a_file_named_twice_is_read_once_with_a_warning(
    clean: Callable[..., Any], write_lines: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    raw = write_lines("data/a.jsonl", ["only once"])
    result = clean(raw, raw.parent, "--dedup", "none")
    assert result.texts == ["only once"]
    assert result.manifest.notes == {"duplicate_inputs": 1}
    assert f"given more than once, read once: {raw}" in caplog.text


def test_warnings_reach_a_shell(write_lines: Any, tmp_path: Path) -> None:
    raw = write_lines("a.jsonl", ["only once and nothing else but these ten words here"])
    arguments = ["clean", raw, raw, "--out", tmp_path / "out", "--workers", "1"]
    code = "from tokenmill_core.cli import main; main()"
    found = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert found.returncode == 0
    assert "WARNING: given more than once, read once" in found.stderr
    assert "1 of 1 documents" in found.stdout


# Size


def test_a_huge_line_between_small_ones_takes_bounded_memory(tmp_path: Path, dataset: Callable[..., Any]) -> None:
    """Within a small multiple of the line itself: 50 MB of text, beside what the program needs anyway."""
    word, count = b"x" * 99 + b" ", 500_000
    with (tmp_path / "huge.jsonl").open("wb") as file:
        file.write(line("a small one"))
        file.write(b'{"text":"' + word * count + b'"}\n')
        file.write(line("another small one").rstrip(b"\n"))
    peaks = {}
    for name in ("huge", "small"):
        if name == "small":
            (tmp_path / "small.jsonl").write_bytes(line("a small one"))
        arguments = ["clean", str(tmp_path / f"{name}.jsonl"), "--profile", "none", "--out", str(tmp_path / name)]
        code = "from tokenmill_core.cli import main; main()"
        process = subprocess.Popen([sys.executable, "-c", code, *arguments, "--workers", "1"])
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks[name] = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    assert [len(text) for text in dataset("huge").texts] == [11, len(word) * count, 17]
    assert peaks["huge"] - peaks["small"] < 12 * len(word) * count
