"""Shares of kinds of characters."""

import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.characters import Characters
from tokenmill_corpus.filters.family import Rule

PIECES = st.sampled_from(
    ["Word", "ÜBER", "ǅ", "٣", "¾", "—", "日本", "http", "http://a.b/ü", "www.x", "awww.y", "w", " ", "\n"]
)
TEXTS = st.lists(PIECES | st.text(max_size=3), max_size=20).map("".join)


def documents(*texts: str) -> Documents:
    return Documents(pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"]))


def rules(*texts: str, **settings: float) -> dict[str, Rule]:
    return {rule.setting: rule for rule in Characters(**settings).apply(documents(*texts)).rules}


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXTS, max_size=3))
def test_characters_are_counted_as_python_counts_them(texts: list[str]) -> None:
    texts = [text for text in texts if not any(unicodedata.category(c) == "Cn" for c in text)]
    counts = documents(*texts).characters
    for d, text in enumerate(texts):
        categories = [unicodedata.category(c) for c in text]
        assert counts.characters[d] == len(text)
        assert counts.letters[d] == sum(map(str.isalpha, text))
        assert counts.digits[d] == categories.count("Nd")
        assert counts.upper[d] == categories.count("Lu") + categories.count("Lt")
        assert counts.spaces[d] == sum(map(str.isspace, text))
        symbols = sum(c[0] == "P" or c in ("Sm", "Sc", "Sk") for c in categories)
        assert counts.symbols[d] == symbols - sum(c in "🏻🏼🏽🏾🏿" for c in text)


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        ("min_letter_ratio", "ab é ١2 ! ?\n", 3 / 7),
        ("max_digit_ratio", "ab ١2 \n\n !", 2 / 5),
        ("max_symbol_ratio", "a, b! — €\n", 4 / 6),
        ("max_url_ratio", "see http://é.b/c, or www.d x", 18 / 24),
        ("max_upper_ratio", "ABc, ÉÜ d 1", 4 / 6),
        ("max_white_space_ratio", "a \n\u3000b", 3 / 5),
    ],
)
def test_a_threshold_is_inclusive(setting: str, text: str, value: float) -> None:
    kept = rules(text, **{setting: value})[setting]
    stricter = value + 1e-9 if setting.startswith("min_") else value - 1e-9
    assert kept.values.tolist() == [value]
    assert (kept.breaks.tolist(), rules(text, **{setting: stricter})[setting].breaks.tolist()) == ([False], [True])


def test_no_value_is_nan_and_prose_of_every_script_stays() -> None:
    texts = [
        "",
        "\n\n",
        "!!!",
        "Plain prose, then a link, www.example.org, " + "and words to outweigh it. " * 4,
    ]
    texts += ["日本語の文章はここにあります。", "هذا نَصٌّ مُشَكَّلٌ قصير.", "मैं घर जा रहा हूँ।", "สวัสดีครับผมชื่อสมชาย"]
    found = rules(*texts)
    assert all((rule.values >= 0).all() for rule in found.values())
    assert found["max_white_space_ratio"].breaks.tolist() == [False, True] + [False] * 6
    assert found["max_symbol_ratio"].breaks.tolist() == [False, False, True] + [False] * 5
    assert [name for name, rule in found.items() if rule.breaks[3:].any()] == []
    assert [rule.values.tolist() for rule in rules().values()] == [[]] * 6


def test_blank_lines_and_indentation_change_no_share_but_their_own() -> None:
    found = rules("A b1\nc!", "  A b1\n\n\n    c!")
    assert [name for name, rule in found.items() if rule.values[0] != rule.values[1]] == ["max_white_space_ratio"]


def test_slices() -> None:
    whole = documents("AB", "c1", "", "www.d")
    part = Characters().apply(Documents(whole.batch.slice(1, 3))).rules
    for rule, sliced in zip(Characters().apply(whole).rules, part, strict=True):
        assert sliced.values.tolist() == rule.values[1:].tolist()
