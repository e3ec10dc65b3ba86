"""FineWeb's rules."""

import pyarrow as pa
import pytest

from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Rule
from tokenmill_corpus.filters.fineweb import FineWeb


def documents(*texts: str) -> Documents:
    return Documents(pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"]))


def rules(*texts: str, **settings: float) -> dict[str, Rule]:
    return {rule.setting: rule for rule in FineWeb(**settings).apply(documents(*texts)).rules}


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        ("min_terminal_line_ratio", "A line.\n\nWhat? \nNot:\nnor this,\n文。", 3 / 5),
        ("max_short_line_ratio", "x" * 30 + "\n\n" + "é" * 31 + "\n  " + "ü" * 30 + "  \n" + "日" * 31, 2 / 4),
        ("max_duplicate_line_character_ratio", "aa\n\nb\naa \nccccc", 2 / 10),
        ("max_line_break_ratio", "one two\n\n\nthree\nfour!", 2 / 5),
    ],
)
def test_a_threshold_is_inclusive(setting: str, text: str, value: float) -> None:
    kept = rules(text, **{setting: value})[setting]
    stricter = value + 1e-9 if setting.startswith("min_") else value - 1e-9
    assert kept.values.tolist() == [value]
    assert (kept.breaks.tolist(), rules(text, **{setting: stricter})[setting].breaks.tolist()) == ([False], [True])


def test_the_length_of_short_lines_is_a_setting() -> None:
    assert rules("abc\nabcd", short_line_length=3)["max_short_line_ratio"].values.tolist() == [1 / 2]


def test_sentences_of_every_script_end_lines() -> None:
    lines = ["Latin.", "中文。", "عربي؟", "हिन्दी।", "Հայերեն։", "አማርኛ።", "မြန်မာ။", "日本語！"]
    assert rules(*lines, "none", '"quoted."')["min_terminal_line_ratio"].values.tolist() == [1] * len(lines) + [0, 0]


def test_every_odd_document_breaks_a_rule_and_none_is_nan() -> None:
    found = rules("", "\n\n", "word", "!!!,", "One line that is long enough to be text, and ends.")
    assert found["min_terminal_line_ratio"].breaks.tolist() == [True] * 4 + [False]
    assert not any(rule.breaks[4] for rule in found.values())


def test_an_article_scores_as_its_single_spaced_copy() -> None:
    lines = ["A first line that says something.", "Short", "Short", "And a last one, that says more!"]
    for rule in rules("\n".join(lines), "\n\n\n\n".join(lines)).values():
        assert rule.values[0] == rule.values[1], rule.setting


def test_published_thresholds_and_empty_batches() -> None:
    found = rules()
    assert [rule.threshold for rule in found.values()] == [0.12, 0.67, 0.01, 0.3]
    assert [rule.values.tolist() for rule in found.values()] == [[]] * 4
