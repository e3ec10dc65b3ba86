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
    with pytest.raises(InputError, match=f"no document has a value in '{name}'"):
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
