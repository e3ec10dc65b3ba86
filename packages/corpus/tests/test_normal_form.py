"""The words that texts are compared by."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_corpus.dedup.normal_form import hash_characters, hash_words, normal_form_table


def hashed(text: str, by_character: bool = False) -> list[int]:
    data = np.frombuffer(text.encode(), np.uint8)
    found = np.zeros(max(1, len(data)), np.uint64)
    hash_units = hash_characters if by_character else hash_words
    return found[: hash_units(data, 0, len(data), normal_form_table(), found)].tolist()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("!!! ... — «»", []),
        ("The  CAT,\tsat\n", ["the", "cat", "sat"]),
        ("don't stop", ["don", "t", "stop"]),
        ("x=1+2", ["x", "1", "2"]),
        ("Ünïcode ΣΊΣΥΦΟΣ", ["ünïcode", "σίσυφοσ"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("قُرْآن", ["قُرْآن"]),
        ("今日は。東京", ["今", "日", "は", "東", "京"]),
        ("so\u00adft z\u200der", ["soft", "zer"]),
        ("I 👍🏽 it", ["i", "👍🏽", "it"]),
        ("\x00a\x01b\x7f", ["a", "b"]),
        ("a\U000323afb", ["a", "\U000323af", "b"]),
    ],
)
def test_words_of_a_text(text: str, words: list[str]) -> None:
    expected = [hashed(word) for word in words]
    assert all(len(one) == 1 for one in expected)
    assert hashed(text) == [one[0] for one in expected]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("👨‍👩‍👧", "👨‍👩‍👦"),
        ("👍🏽", "👍🏿"),
        ("कि", "की"),
        ("קֹדֶשׁ", "קָדַשׁ"),
        ("é", "e"),
        ("1", "2"),
        ("ก", "ข"),
        ("ab", "ba"),
    ],
)
def test_what_stays_apart(one: str, other: str) -> None:
    assert hashed(one) != hashed(other)


def test_characters_are_joined_by_single_spaces() -> None:
    assert hashed("Ab,  c!", by_character=True) == [hashed(c, True)[0] for c in "ab"] + [
        hashed("x y", True)[1],
        hashed("c", True)[0],
    ]
    assert hashed(" \n!", by_character=True) == []


ALPHABET = st.sampled_from("aAbÉéß1 \n.,-_今の한ไก\u0301\u200d👨👩ÿ")


@settings(max_examples=300, deadline=None)
@given(st.lists(ALPHABET, max_size=30).map("".join), st.lists(ALPHABET, max_size=30).map("".join))
def test_equal_words_and_no_others_hash_alike(one: str, other: str) -> None:
    def words(text: str) -> list[str]:
        spaced = "".join(f" {c} " if c in "今のไก" else c for c in text.lower().replace("\u200d", ""))
        return "".join(" " if c in " \n.,-_" else c for c in spaced).split()

    assert (hashed(one) == hashed(other)) == (words(one) == words(other))
    assert len(hashed(one)) == len(words(one))
    in_characters = hashed(one, by_character=True) == hashed(other, by_character=True)
    assert in_characters == (spelled(one) == spelled(other))


def spelled(text: str) -> str:
    """The words of a text, unspaced scripts not taken apart."""
    kept = text.lower().replace("\u200d", "")
    return " ".join("".join(" " if c in " \n.,-_" else c for c in kept).split())
