"""Settings of clean: profiles under a user's own, and settings that would change nothing."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenmill_core.config import dump_toml, load_config
from tokenmill_core.errors import ConfigError, InputError
from tokenmill_corpus import CleanConfig
from tokenmill_corpus.profiles import PROFILES, Profile

Clean = Callable[..., Any]
Write = Callable[..., Path]
TEXTS = [" ".join(f"w{n}x{i}" for i in range(20)) for n in range(3)]


@pytest.mark.parametrize("profile", list(Profile))
def test_a_resolved_profile_reads_back_as_it_is(profile: Profile, tmp_path: Path) -> None:
    config = CleanConfig.model_validate({"profile": profile})
    (tmp_path / "c.toml").write_text(dump_toml(config))
    assert load_config(CleanConfig, str(tmp_path / "c.toml")) == config
    assert bool(config.filter.families()) == (profile in PROFILES)


def test_what_is_set_is_switched_on_and_the_rest_is_the_profiles() -> None:
    values = {"profile": "gopher", "filter": {"length": {"min_words": 7}}, "dedup": {"minhash": {"ngram": 3}}}
    config = CleanConfig.model_validate(values)
    assert list(config.filter.families()) == ["length", "gopher_repetition", "gopher_quality"]
    assert (config.filter.length.min_words, config.dedup.minhash.enabled) == (7, True)
    values["filter"] = {"gopher_quality": {"enabled": False, "min_words": 7}}
    assert list(CleanConfig.model_validate(values).filter.families()) == ["gopher_repetition"]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"dedup": {"url": True}}, "url"),
        ({"dedup": {"keep": "score", "score_column": "scoer"}}, "scoer"),
        ({"filter": {"sampling": {"column": "srcc", "rates": {"a": 0.5}}}}, "srcc"),
    ],
)
def test_a_column_that_no_document_has_is_refused(
    clean: Clean, write_jsonl: Write, settings: dict[str, Any], name: str
) -> None:
    with pytest.raises(InputError, match=f"'{name}'.*no document|no document has a value in '{name}'"):
        clean(write_jsonl("a.jsonl", TEXTS), **settings)


def test_a_column_that_is_only_carried_is_warned_about(
    clean: Clean, write_jsonl: Write, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        result = clean(write_jsonl("a.jsonl", TEXTS), reader={"carry": ("nofield",)})
    assert [row["nofield"] for row in result.rows] == [None] * 3
    assert "--carry nofield: no document has a value there" in caplog.text


def test_columns_of_a_dataset_are_not_lost_in_silence(
    clean: Clean, write_jsonl: Write, caplog: pytest.LogCaptureFixture
) -> None:
    once = clean(write_jsonl("a.jsonl", [{"text": text, "url": "u"} for text in TEXTS]), reader={"carry": ("url",)})
    with caplog.at_level(logging.WARNING):
        assert "url" not in clean(once.folder, out="lost").rows[0]
    assert "columns left behind: url" in caplog.text
    assert clean(once.folder, out="kept", reader={"carry": ("url",)}).rows == once.rows


def test_priorities_name_inputs(clean: Clean, write_jsonl: Write) -> None:
    with pytest.raises(ConfigError, match="no input is called 'b'; the inputs are a"):
        clean(write_jsonl("a.jsonl", TEXTS), dedup={"keep": "priority", "priority": ["b"]})


def test_a_blocklist_without_a_list_is_refused(clean: Clean, write_jsonl: Write) -> None:
    with pytest.raises(ConfigError, match="no list is given"):
        clean(write_jsonl("a.jsonl", TEXTS), filter={"blocklist": {"enabled": True}})


def test_a_carried_column_is_not_overwritten(clean: Clean, write_jsonl: Write) -> None:
    raw = write_jsonl("a.jsonl", [{"text": text, "length.words": "mine"} for text in TEXTS])
    with pytest.raises(InputError, match=r"--carry length\.words: a rule writes a column of this name"):
        clean(raw, reader={"carry": ("length.words",)}, scores=True)


def test_a_priority_that_names_a_dataset_says_what_it_goes_by(clean: Clean, write_jsonl: Write) -> None:
    once = clean(write_jsonl("a.jsonl", TEXTS), out="once", name="mine")
    with pytest.raises(ConfigError, match="'mine' is a dataset; its documents go by the raw input"):
        clean(once.folder, dedup={"keep": "priority", "priority": ["mine"]})
    assert len(clean(once.folder, dedup={"keep": "priority", "priority": ["a"]}).rows) == 3


def test_parts_of_a_dataset_have_the_same_columns_whatever_was_dropped(
    clean: Clean, write_jsonl: Write, many_tasks: None
) -> None:
    """datatrove's reasons are known only when they occur, so they are no columns."""
    filters = [{"name": "RegexFilter", "regex_exp": "FORBIDDEN"}]
    first = write_jsonl("raw/1.jsonl", [TEXTS[0], "FORBIDDEN " + TEXTS[1]])
    write_jsonl("raw/2.jsonl", [TEXTS[2]])
    result = clean(first.parent, profile="none", filter={"datatrove": {"filters": filters}}, scores=True)
    assert [set(row) for row in result.rows] == [{"id", "text", "file", "row"}] * 2


def test_what_edits_leave_blank_is_dropped(clean: Clean, write_jsonl: Write) -> None:
    raw = write_jsonl("a.jsonl", [TEXTS[0], "\x01\x02 \n"])
    result = clean(raw, profile="none", filter={"normalise": {"remove_controls": True}})
    assert result.texts == [TEXTS[0]]
    assert result.ledger == {"normalise.emptied": (1, 4)}
