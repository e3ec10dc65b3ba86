"""The preview: every rule by itself, and in the end what a build then does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tokenmill_corpus.cli import clean as clean_command

Clean = Callable[..., Any]
Write = Callable[..., Path]


def text(number: int, count: int = 30) -> str:
    return " ".join(f"w{number}x{i}" for i in range(count))


def show(*arguments: str) -> Any:
    result = CliRunner().invoke(clean_command, [*arguments, "--preview", "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_each_rule_is_judged_by_itself(write_jsonl: Write) -> None:
    lines = "same line\n" * 4
    raw = write_jsonl("a.jsonl", [text(1), "short", lines, text(2), lines + text(3)])
    found = show(str(raw))
    rules = {rule["rule"]: rule for rule in found["rules"]}
    words = rules["length.min_words"]
    assert (found["documents"], found["kept"], found["kept_bytes"]) == (5, 2, len(text(1)) + len(text(2)))
    assert (words["dropped"], words["dropped_bytes"], words["first"], words["only"]) == (2, 5 + len(lines), 2, 1)
    assert [(e["row"], e["value"], e["text"]) for e in words["examples"]] == [(3, 8.0, lines), (2, 1.0, "short")]
    assert words["quantiles"]["0"] == 1
    assert words["quantiles"]["0.5"] == 30
    assert sum(words["histogram"]) == 5
    duplicates = rules["gopher_repetition.max_duplicate_line_ratio"]
    assert (duplicates["dropped"], duplicates["first"]) == (2, 1)


def test_a_preview_of_everything_says_what_a_build_does(clean: Clean, write_jsonl: Write) -> None:
    raw = write_jsonl("a.jsonl", [text(n, 1 + 3 * n) for n in range(30)])
    found = show(str(raw), "--min-words", "20")
    built = clean(raw, filter={"length": {"min_words": 20}})
    assert (found["kept"], found["kept_bytes"]) == (built.manifest.counts.documents, built.manifest.counts.bytes)
    first = {rule["rule"]: rule["first"] for rule in found["rules"] if rule["first"]}
    assert first == {reason: count for reason, (count, _) in built.ledger.items()}


def test_the_sample_is_spread_over_all_files(write_jsonl: Write) -> None:
    for n in range(5):
        folder = write_jsonl(f"raw/{n}.jsonl", [text(n * 100 + i, 20 + n) for i in range(50)]).parent
    found = show(str(folder), "--preview-documents", "10")
    words = next(rule for rule in found["rules"] if rule["rule"] == "length.min_words")
    assert found["documents"] == 10
    assert (words["quantiles"]["0"], words["quantiles"]["1"]) == (20, 24)


def test_a_preview_writes_nothing_and_a_build_needs_a_place(write_jsonl: Write, tmp_path: Path) -> None:
    raw = write_jsonl("a.jsonl", [text(1)])
    result = CliRunner().invoke(clean_command, [str(raw), "--preview"])
    assert result.exit_code == 0
    assert "length.min_words" in result.output
    assert list(tmp_path.iterdir()) == [raw]
    missing = CliRunner().invoke(clean_command, [str(raw)])
    assert missing.exit_code == 2
    assert "--out" in missing.output


def test_edits_are_shown_and_seen_by_later_rules(write_jsonl: Write) -> None:
    sentence = "This is one whole sentence of it. "
    raw = write_jsonl("a.jsonl", [sentence * 8 + "\nno full stop here\n" + sentence])
    found = show(str(raw), "--profile", "c4", "--set", "filter.length.enabled=true")
    assert found["edits"]["c4.no_terminal_punctuation_lines"] > 0
