"""Gopher's rules against repetition: n-grams against plain Python, thresholds, and odd documents."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Rule
from tokenmill_corpus.filters.gopher_repetition import GopherRepetition
from tokenmill_corpus.ngrams import DUPLICATE_NGRAMS, TOP_NGRAMS, repeated_characters

PIECES = ("a", "a", "a", "b", "b", "c", "dd,", "é", "(日)", "日本", ".", "...", "\n", "\t")
TEXTS = st.lists(st.sampled_from(PIECES), max_size=80).map(" ".join)


def documents(*texts: str) -> Documents:
    return Documents(pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"]))


def rules(*texts: str, **settings: float) -> dict[str, Rule]:
    return {rule.setting: rule for rule in GopherRepetition(**settings).apply(documents(*texts)).rules}


class Reference:
    """Repeated n-grams of one document, straight from the definition."""

    def __init__(self, found: Documents, d: int) -> None:
        words = found.words
        squeezed = " ".join(found.batch.column("text")[d].as_py().split())
        self.spans = [(int(words.starts[k]), int(words.ends[k])) for k in range(words.first[d], words.last[d])]
        self.tokens = [squeezed[start:end] for start, end in self.spans]

    def gram(self, i: int, n: int) -> tuple[str, ...]:
        return tuple(self.tokens[i : i + n])

    def characters(self, i: int, n: int) -> int:
        return self.spans[i + n - 1][1] - self.spans[i][0]

    def top(self, n: int) -> int:
        grams = [self.gram(i, n) for i in range(len(self.tokens) - n + 1)]
        if not grams:
            return 0
        gram, count = Counter(grams).most_common(1)[0]
        return self.characters(grams.index(gram), n) * count if count > 1 else 0

    def duplicates(self, n: int) -> int:
        seen, i, characters = set(), 0, 0
        while i + n <= len(self.tokens):
            if self.gram(i, n) in seen:
                characters += sum(map(len, self.gram(i, n)))
                i += n
            else:
                seen.add(self.gram(i, n))
                i += 1
        return characters


@settings(max_examples=300, deadline=None)
@given(st.lists(TEXTS, max_size=3))
def test_repeated_ngrams_are_those_of_the_definition(texts: list[str]) -> None:
    found = documents(*texts)
    counts = repeated_characters(found.words)
    for d in range(len(texts)):
        reference = Reference(found, d)
        for n in TOP_NGRAMS:
            assert counts[n][d] == reference.top(n), n
        for n in DUPLICATE_NGRAMS:
            assert counts[n][d] == reference.duplicates(n), n


def test_ngrams_by_hand() -> None:
    found = rules("x y z x y", "a b c d e f a b c d e g", "a a a a")
    # "x y" twice: 2 · 3 of 9 characters; nothing else repeats.
    assert found["max_top_2gram_character_ratio"].values.tolist() == [6 / 9, 6 / 23, 9 / 7]
    assert found["max_top_3gram_character_ratio"].values.tolist() == [0, 10 / 23, 10 / 7]
    # "a b c d e" again: 5 of 23 characters.
    assert found["max_duplicate_5gram_character_ratio"].values.tolist() == [0, 5 / 23, 0]
    assert found["max_duplicate_6gram_character_ratio"].values.tolist() == [0, 0, 0]


def test_an_ngram_that_occurs_once_is_not_a_top_ngram() -> None:
    found = rules("short text", "three words here")
    assert not any(rule.breaks.any() or rule.values.any() for rule in found.values())


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        ("max_duplicate_line_ratio", "a\nb\na\nc", 1 / 4),
        ("max_duplicate_line_character_ratio", "aa\nb\naa\nccccc", 2 / 10),
        ("max_duplicate_paragraph_ratio", "a\n\nb\n\na\n\nc", 1 / 4),
        ("max_duplicate_paragraph_character_ratio", "aa\n\nb\n\naa\n\nccccc", 2 / 10),
        ("max_top_2gram_character_ratio", "a b " * 2 + "c d e f", 6 / 15),
        ("max_top_4gram_character_ratio", "a b c d e a b c d", 14 / 17),
        ("max_duplicate_5gram_character_ratio", "a b c d e f a b c d e", 5 / 21),
        ("max_duplicate_10gram_character_ratio", "a b c d e f g h i j " * 2, 10 / 39),
    ],
)
def test_a_threshold_is_inclusive(setting: str, text: str, value: float) -> None:
    kept, dropped = rules(text, **{setting: value})[setting], rules(text, **{setting: value - 1e-9})[setting]
    assert kept.values.tolist() == [value]
    assert (kept.breaks.tolist(), dropped.breaks.tolist()) == ([False], [True])
    assert kept.threshold == value


def test_published_thresholds_in_their_order() -> None:
    found = rules("")
    expected = [0.30, 0.20, 0.30, 0.20, 0.20, 0.18, 0.16, 0.15, 0.14, 0.13, 0.12, 0.11, 0.10]
    assert [rule.threshold for rule in found.values()] == expected
    assert list(found) == [name for name in GopherRepetition.model_fields if name != "enabled"]


def test_odd_documents_have_values_and_slices_the_same_ones() -> None:
    texts = ["", "word", "!!!", "\n\n\n", "a b a b a b a b a b a b", "ok"]
    whole = documents(*texts)
    part = GopherRepetition().apply(Documents(whole.batch.slice(2, 3))).rules
    for rule, sliced in zip(GopherRepetition().apply(whole).rules, part, strict=True):
        assert rule.values[[0, 1, 2, 3, 5]].tolist() == [0] * 5
        assert sliced.values.tolist() == rule.values[2:5].tolist()
    assert [rule.values.tolist() for rule in GopherRepetition().apply(documents()).rules] == [[]] * 13


def test_an_article_scores_as_its_single_spaced_copy() -> None:
    paragraphs = [f"The {word} paragraph says a few words, then it ends." for word in ("first", "last")]
    for rule in rules("\n".join(paragraphs), "\n\n\n\n".join(paragraphs), "\n \n".join(paragraphs)).values():
        assert len(set(rule.values.tolist())) == 1, rule.setting


def test_distinct_paragraphs_of_many_scripts_repeat_nothing() -> None:
    texts = ["日本語の文章はここにあります。", "สวัสดีครับผมชื่อสมชาย", "मैं घर जा रहा हूँ।", "هذا نَصٌّ مُشَكَّلٌ", "👨‍👩‍👧‍👦 שלום"]
    assert not any(rule.breaks.any() for rule in rules(*texts).values())


def test_a_threshold_out_of_range_is_refused_by_its_name() -> None:
    with pytest.raises(ValidationError, match="max_duplicate_line_ratio"):
        GopherRepetition(max_duplicate_line_ratio=-0.1)
