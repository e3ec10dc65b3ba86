"""Cleaning one corpus of what another one holds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenmill_core.errors import InputError

Clean = Callable[..., Any]
Write = Callable[..., Path]


def text(number: int) -> str:
    return " ".join(f"w{number}x{i}" for i in range(30))


def test_what_the_other_corpus_holds_goes_and_nothing_of_it_is_written(clean: Clean, write_jsonl: Write) -> None:
    mine = write_jsonl("mine.jsonl", [text(1), text(2), text(3) + " more", text(1)])
    # The other corpus comes last in the order of the data and wins all the same; rules do not judge it.
    other = write_jsonl("zz.jsonl", ["short", text(2), text(3)])
    result = clean(mine, against=(str(other),), dedup={"minhash": {"enabled": True}})
    assert result.texts == [text(1)]
    assert {reason: count for reason, (count, _) in result.ledger.items()} == {
        "exact_duplicate": 2,
        "near_duplicate": 1,
    }
    assert result.manifest.counts.input_documents == 4
    assert [ref.name for ref in result.manifest.inputs] == ["mine", "against.zz"]


def test_a_dataset_can_be_the_other_corpus(clean: Clean, write_jsonl: Write) -> None:
    old = clean(write_jsonl("old.jsonl", [text(1), text(2)]), out="old")
    new = clean(write_jsonl("new.jsonl", [text(2), text(3)]), out="new", against=(str(old.folder),))
    assert new.texts == [text(3)]
    assert old.manifest.digest in [ref.digest for ref in new.manifest.inputs]


def test_where_the_other_corpus_lies_is_no_part_of_the_result(clean: Clean, write_jsonl: Write, tmp_path: Path) -> None:
    mine, other = write_jsonl("mine.jsonl", [text(1), text(2)]), write_jsonl("a/other.jsonl", [text(2)])
    first = clean(mine, out="first", against=(str(other),))
    (tmp_path / "b").mkdir()
    moved = other.rename(tmp_path / "b" / "other.jsonl")
    assert clean(mine, out="second", against=(str(moved),)).manifest.digest == first.manifest.digest
    write_jsonl("b/other.jsonl", [text(1)])
    changed = clean(mine, out="second", against=(str(moved),))
    assert changed.manifest.digest != first.manifest.digest
    assert changed.texts == [text(2)]


def test_a_corpus_is_not_cleaned_of_itself(clean: Clean, write_jsonl: Write) -> None:
    mine = write_jsonl("mine.jsonl", [text(1)])
    with pytest.raises(InputError, match=r"mine.*is an INPUT too"):
        clean(mine, against=(str(mine),))


def test_equal_documents_stay_equal_where_rules_edit_them(clean: Clean, write_jsonl: Write) -> None:
    mail = "mail to someone@example.org"
    mine = write_jsonl("mine.jsonl", [f"{text(1)} {mail}", f"{text(2)} {mail}"])
    other = write_jsonl("other.jsonl", [f"{text(1)} {mail}"])
    result = clean(mine, against=(str(other),), filter={"pii": {"enabled": True}})
    assert result.texts == [f"{text(2)} mail to <EMAIL>"]
