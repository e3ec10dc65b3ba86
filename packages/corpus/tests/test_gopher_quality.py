"""Gopher's rules of quality."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Rule
from tokenmill_corpus.filters.gopher_quality import GopherQuality

PROSE = "The people of the town have gone to the river, and that was with good reason. "
LINES = st.sampled_from(
    ["• one", "-x", "–y", "- …", "more...", "so…", " … ", "..", ".", "....", "#", "# a#", "\u3000•", "é…", "‧", ""]
)
TEXTS = st.lists(LINES, max_size=10).map("\n".join)


def documents(*texts: str) -> Documents:
    return Documents(pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"]))


def rules(*texts: str, **settings: object) -> dict[str, Rule]:
    return {rule.setting: rule for rule in GopherQuality(**settings).apply(documents(*texts)).rules}


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXTS, max_size=3))
def test_lines_and_symbols_are_counted_as_defined(texts: list[str]) -> None:
    found = rules(*texts)
    tokens = documents(*texts).words.num_tokens.tolist()
    for d, text in enumerate(texts):
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        bullets = sum(line.startswith(("•", "-")) for line in lines)
        endings = sum(line.endswith(("...", "…")) for line in lines)
        assert found["max_bullet_line_ratio"].values[d] == bullets / max(1, len(lines))
        assert found["max_ellipsis_line_ratio"].values[d] == endings / max(1, len(lines))
        assert found["max_hash_ratio"].values[d] == text.count("#") / max(1, tokens[d])
        assert found["max_ellipsis_ratio"].values[d] == (text.count("...") + text.count("…")) / max(1, tokens[d])


def test_prose_stays() -> None:
    assert not any(rule.breaks.any() for rule in rules(PROSE * 5).values())


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        ("min_words", "one two three !", 3),
        ("max_words", "one two three !", 3),
        ("min_mean_word_length", "a bcd , (ef)", 2),
        ("max_mean_word_length", "don't well.known", 7.5),
        ("max_hash_ratio", "#a b#c # d e", 3 / 6),
        ("max_ellipsis_ratio", "a ... b… c", 2 / 5),
        ("max_bullet_line_ratio", "- a\n\n• b\nc\n\n\nd", 2 / 4),
        ("max_ellipsis_line_ratio", "a...\n\nb… \nc\nd", 2 / 4),
        ("min_alphabetic_token_ratio", "a 1, b2 !", 2 / 5),
        ("min_stop_words", "the cat, the dog and The And of2", 2),
    ],
)
def test_a_threshold_is_inclusive(setting: str, text: str, value: float) -> None:
    kept = rules(text, **{setting: value})[setting]
    assert kept.values.tolist() == [value]
    assert kept.breaks.tolist() == [False]
    step = 1 if setting.endswith("words") else 1e-9
    stricter = value + step if setting.startswith("min_") else value - step
    assert rules(text, **{setting: stricter})[setting].breaks.tolist() == [True]


def test_every_odd_document_breaks_a_rule() -> None:
    found = rules("", "word", "!!! ??? ...", "\n\n\n\n", PROSE * 5)
    broken = [any(rule.breaks[d] for rule in found.values()) for d in range(5)]
    assert broken == [True, True, True, True, False]
    assert found["min_words"].breaks.tolist() == [True, True, True, True, False]


def test_an_article_scores_as_its_single_spaced_copy() -> None:
    lines = [PROSE.strip(), "- a bullet", "and so on...", "# a heading"] * 3
    for rule in rules("\n".join(lines), "\n\n\n\n".join(lines)).values():
        assert rule.values[0] == rule.values[1], rule.setting


def test_scripts_without_spaces_are_neither_short_nor_made_of_short_words() -> None:
    texts = [
        "这是一个很长的中文句子，用来说明字数的计算方法。" * 4,
        "สวัสดีครับผมชื่อสมชายและผมอยู่ที่นี่" * 3,
        "日本語の文章はここにあります。" * 5,
    ]
    found = rules(*texts)
    names = ("min_words", "min_mean_word_length", "max_mean_word_length")
    assert not any(found[name].breaks.any() for name in names)
    assert rules("漢字 ab abc")["min_mean_word_length"].values.tolist() == [(5 + 5 + 2 + 3) / 4]


def test_own_stop_words() -> None:
    assert rules("der Hund und die Katze", stop_words=("der", "und"))["min_stop_words"].values.tolist() == [2]
    with pytest.raises(ValidationError, match="stop_words"):
        GopherQuality(stop_words=tuple(map(str, range(65))))


def test_published_thresholds_and_empty_batches() -> None:
    found = rules()
    assert [rule.threshold for rule in found.values()] == [50, 100_000, 3, 10, 0.1, 0.1, 0.9, 0.3, 0.8, 2]
    assert [rule.values.tolist() for rule in found.values()] == [[]] * 10
    with pytest.raises(ValidationError, match="min_alphabetic_token_ratio"):
        GopherQuality(min_alphabetic_token_ratio=1.1)
