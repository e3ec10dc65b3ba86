"""Measures against the same definitions in plain Python, over text of many scripts."""

import itertools
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_corpus.measures import Measures, measure
from tokenmill_corpus.text_buffers import text_buffers

ASCII_SPACE = " \t\n\v\f\r\x1c\x1d\x1e\x1f"
UNSPACED = """
    0E00-0EFF 1000-109F 1780-17FF 3041-30FF 31F0-31FF 3400-4DBF 4E00-9FFF F900-FAFF 20000-323AF
"""
BLOCKS = [block.split("-") for block in UNSPACED.split()]


def is_unspaced(character: str) -> bool:
    return any(int(first, 16) <= ord(character) <= int(last, 16) for first, last in BLOCKS)


def words_of(text: str) -> int:
    count, inside = 0, False
    for character in text:
        if is_unspaced(character):
            count, inside = count + 1, False
        elif character.isspace():
            inside = False
        else:
            count, inside = count + (not inside), True
    return count


def duplicates_in(items: list[object]) -> int:
    return len(items) - len(set(items))


def ratios_of(text: str) -> tuple[float, float, float]:
    """(duplicate lines, their bytes, duplicate paragraphs), each over its total."""
    stripped = [line.strip(ASCII_SPACE) for line in text.split("\n")]
    lines = [line for line in stripped if line]
    paragraphs = [tuple(group) for filled, group in itertools.groupby(stripped, bool) if filled]
    total_bytes = sum(len(line.encode()) for line in lines)
    repeated = sum(len(line.encode()) for place, line in enumerate(lines) if line in lines[:place])
    return (
        duplicates_in(list(lines)) / max(1, len(lines)),
        repeated / max(1, total_bytes),
        duplicates_in(list(paragraphs)) / max(1, len(paragraphs)),
    )


def measured(*texts: str) -> Measures:
    return measure(text_buffers(pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])))


SAMPLES = """plain words|日本語の文、です。|ภาษาไทย|ພາສາລາວ|မြန်မာ|ខ្មែរ|한국어 낱말|مَرْحَبًا بكم|שלום
हिन्दी पाठ|👨‍👩‍👧‍👦 👍🏽|à|xÅ|Ã|𠀀𪛕|ㇰ|·|_a_|-"""
SPACES = ["\u3000", "\u0085", "\u00a0", "\u2028", "\r", " ", "\t", "\x1c", "\x1f"]
SCRIPTS = st.sampled_from([*SAMPLES.replace("\n", "|").split("|"), *SPACES, "e\u0301"])
LINES = st.lists(SCRIPTS | st.text(max_size=4), max_size=4).map("".join)
TEXTS = st.lists(LINES | st.sampled_from(["", "twice", "thrice ", " ", "\r"]), max_size=12).flatmap(
    lambda lines: st.lists(st.sampled_from(["\n", "\r\n", "\n\n", "\n \n"]), min_size=len(lines), max_size=len(lines))
    .map(lambda ends: "".join(itertools.chain.from_iterable(zip(lines, ends, strict=True))))
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(TEXTS | st.text(), max_size=4))
def test_measures_are_those_of_the_definitions(texts: list[str]) -> None:
    found = measured(*texts)
    assert found.num_words.tolist() == [words_of(text) for text in texts]
    ratios = (found.duplicate_line_ratio, found.duplicate_line_byte_ratio, found.duplicate_paragraph_ratio)
    assert np.array(ratios).T.tolist() == [list(ratios_of(text)) for text in texts]


def test_a_slice_of_a_batch_is_measured_like_the_batch() -> None:
    texts = ["one", "two words", "三字語", "", "a\na"]
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
    found = measure(text_buffers(batch.slice(1, 3)))
    assert found.num_words.tolist() == [2, 3, 0]
    assert text_buffers(batch.slice(1, 3)).num_bytes.tolist() == [9, 9, 0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("don't stop", 2),
        ("  \n\t ", 0),
        ("", 0),
        ("!!!", 1),
        ("東京 is big", 4),
        ("สวัสดี", 6),
        ("a\u00a0b\u2003c\u3000d", 4),
        ("👨‍👩‍👧‍👦", 1),
    ],
)
def test_words_by_hand(text: str, words: int) -> None:
    assert measured(text).num_words.tolist() == [words]


def test_every_letter_of_a_script_without_spaces_is_a_word() -> None:
    """Named by the Unicode database rather than by the blocks that the kernel knows."""
    letters_of = (
        "THAI CHARACTER",
        "LAO LETTER",
        "KHMER LETTER",
        "MYANMAR LETTER",
        "HIRAGANA LETTER",
        "KATAKANA LETTER",
    )
    scripts = (*letters_of, "CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH")
    # Myanmar's extension blocks hold letters of minority languages, and small kana beyond the BMP are historic.
    letters = [c for c in map(chr, range(0x0E00, 0x10000)) if unicodedata.name(c, "").startswith(scripts)]
    letters = [c for c in letters if not 0xA9E0 <= ord(c) <= 0xAA7F]
    assert len(letters) > 20_000
    counts = measured(*(c * 3 for c in letters)).num_words
    assert [c for c, count in zip(letters, counts.tolist(), strict=True) if count != 3] == []


def test_every_character_is_of_the_kind_that_the_definitions_say() -> None:
    characters = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x33000), 0xE0001, 0x10FFFF)]
    counts = measured(*(c * 3 for c in characters)).num_words.tolist()
    assert [c for c, count in zip(characters, counts, strict=True) if count != words_of(c * 3)] == []


def test_every_white_space_character_parts_words() -> None:
    spaces = [c for c in map(chr, range(0x110000)) if c.isspace()]
    others = ["\u200b", "\u200d", "\ufeff", "\u180e", "\u0000"]
    assert measured(*(f"a{c}b" for c in spaces)).num_words.tolist() == [2] * len(spaces)
    assert measured(*(f"a{c}b" for c in others)).num_words.tolist() == [1] * len(others)


def test_lines_that_end_in_bytes_that_look_like_white_space_stay_distinct() -> None:
    """`à` ends in the byte A0 and `Å` in 85: both are white space as code points, neither is as a byte."""
    found = measured("città\ncittÅ\nvilla")
    assert found.duplicate_line_ratio.tolist() == [0]
    assert found.duplicate_line_byte_ratio.tolist() == [0]


def test_an_article_scores_as_its_single_spaced_copy() -> None:
    paragraphs = [f"Paragraph {i} has a few words.\nAnd a second line {i % 2}." for i in range(6)]
    single, triple = "\n\n".join(paragraphs), "\n\n\n\n".join(paragraphs)
    found = measured(single, triple, triple.replace("\n", "\r\n"))
    for ratios in (found.duplicate_line_ratio, found.duplicate_line_byte_ratio, found.duplicate_paragraph_ratio):
        assert len(set(ratios.tolist())) == 1
    assert found.duplicate_line_ratio[0] == 4 / 12


def test_a_paragraph_repeats_only_as_a_whole_and_in_order() -> None:
    found = measured("a\nb\n\nb\na\n\na\n\na\nb", "a\nb\n\na\nb")
    assert found.duplicate_paragraph_ratio.tolist() == [1 / 4, 1 / 2]


def test_many_lines_fill_no_set() -> None:
    lines = [str(i) for i in range(50_000)]
    found = measured("\n".join(lines), "\n".join(lines + lines))
    assert found.duplicate_line_ratio.tolist() == [0, 0.5]
