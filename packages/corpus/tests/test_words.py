"""Words and symbols against the same definitions in plain Python, over text of many scripts."""

import itertools
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_corpus.documents import Documents
from tokenmill_corpus.word_lists import WordList
from tokenmill_corpus.words import HAS_LETTER, IS_UNSPACED, IS_WORD

UNSPACED = """
    0E00-0EFF 1000-109F 1780-17FF 3041-30FF 31F0-31FF 3400-4DBF 4E00-9FFF F900-FAFF 20000-323AF
"""
BLOCKS = [block.split("-") for block in UNSPACED.split()]
SAMPLES = """
    plain words don't well-known x—y 1–2 a--b a-1 3.14
    (a) "quoted," ... !?! --- # #tag a.b.c e.g. $5 5% x…y 日本語の文、です。 ภาษาไทย ฿
    ພາສາລາວ မြန်မာ။ ខ្មែរ។ 한국어 낱말 مَرْحَبًا שָׁלוֹם हिन्दी। 👨‍👩‍👧‍👦 👍🏽 à Ã 𠀀𪛕 ㇰ · _a_ ＡＢＣ e\u0301 ½ Ⅻ ² \u200b 𝒜 𞤀
"""
PIECES = SAMPLES.split()
SPACES = [" ", "\n", "\t", "\r\n", "\n\n\n", "\u3000", "\u0085", "\u00a0", "\u2028", "\x1c", "\x1f", "   "]
TEXTS = st.lists(st.sampled_from([*PIECES, *SPACES, " ", " "]) | st.text(max_size=3), max_size=20).map("".join)


def documents(*texts: str) -> Documents:
    return Documents(pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"]))


def is_unspaced(character: str) -> bool:
    return any(int(first, 16) <= ord(character) <= int(last, 16) for first, last in BLOCKS)


def is_symbol(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] == "P" or (category in ("Sm", "Sc", "Sk") and character not in "🏻🏼🏽🏾🏿")


def tokens_of(text: str) -> list[tuple[str, int]]:
    """(token, kind) in order."""
    found = []
    for chunk in text.split():
        for run in itertools.groupby(chunk, lambda c: is_unspaced(c) and not is_symbol(c)):
            unspaced, part = run[0], "".join(run[1])
            found += list(part) if unspaced else parts_of(part)
    return [(token, kind_of(token)) for token in found]


def parts_of(chunk: str) -> list[str]:
    """Symbols at the start, words with dashes between them, symbols at the end."""
    inner = [i for i, character in enumerate(chunk) if not is_symbol(character)]
    start, end = (inner[0], inner[-1] + 1) if inner else (len(chunk), len(chunk))
    runs = [["".join(run) for _, run in itertools.groupby(side)] for side in (chunk[:start], chunk[end:])]
    words, begin = [], start
    for i in range(start + 1, end - 1):
        if chunk[i] in "-‐‑‒–—―" and chunk[i - 1].isalpha() and chunk[i + 1].isalpha():
            words += [chunk[begin:i], chunk[i]]
            begin = i + 1
    return [*runs[0], *words, *([chunk[begin:end]] if inner else []), *runs[1]]


def kind_of(token: str) -> int:
    if all(map(is_symbol, token)):
        return 0
    return IS_WORD | HAS_LETTER * any(map(str.isalpha, token)) | IS_UNSPACED * is_unspaced(token[0])


def tokens_found(found: Documents, d: int) -> list[tuple[str, int]]:
    """The tokens as they stand in the text with its white space squeezed."""
    words, squeezed = found.words, " ".join(found.batch.column("text")[d].as_py().split())
    rows = range(words.first[d], words.last[d])
    return [(squeezed[words.starts[k] : words.ends[k]], int(words.kinds[k])) for k in rows]


@settings(max_examples=300, deadline=None)
@given(st.lists(TEXTS, max_size=4))
def test_tokens_are_those_of_the_definition(texts: list[str]) -> None:
    texts = [text for text in texts if not any(unicodedata.category(c) == "Cn" for c in text)]
    found = documents(*texts)
    expected = [tokens_of(text) for text in texts]
    assert [tokens_found(found, d) for d in range(len(texts))] == expected
    assert found.words.num_words.tolist() == [sum(kind > 0 for _, kind in tokens) for tokens in expected]
    assert found.words.num_tokens.tolist() == list(map(len, expected))
    assert found.words.num_characters.tolist() == [len(" ".join(text.split())) for text in texts]


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, max_size=4))
def test_equal_tokens_have_equal_hashes_and_others_do_not(texts: list[str]) -> None:
    texts = [text for text in texts if not any(unicodedata.category(c) == "Cn" for c in text)]
    tokens = [token for text in texts for token, _ in tokens_of(text)]
    hashes = documents(*texts).words.hashes.tolist()
    assert len(set(zip(tokens, hashes, strict=True))) == len(set(tokens)) == len(set(hashes))


@pytest.mark.parametrize(
    ("text", "words", "tokens"),
    [
        ("don't stop", 2, 2),
        ("  \n\t ", 0, 0),
        ("", 0, 0),
        ("!!!", 0, 1),
        ("!?!", 0, 3),
        ("He said: (no), ...", 3, 8),
        ("東京 is big", 4, 4),
        ("สวัสดี", 6, 6),
        ("a\u00a0b\u2003c\u3000d", 4, 4),
        ("👨‍👩‍👧‍👦", 1, 1),
        ("C++ -x", 2, 4),
        ("well-known 1-2 a--b x—y", 6, 8),
    ],
)
def test_words_by_hand(text: str, words: int, tokens: int) -> None:
    found = documents(text).words
    assert (found.num_words.tolist(), found.num_tokens.tolist()) == ([words], [tokens])


def test_every_letter_of_a_script_without_spaces_is_a_word() -> None:
    """Named by the Unicode database rather than by the blocks that the table was made from."""
    names = "THAI CHARACTER|LAO LETTER|KHMER LETTER|MYANMAR LETTER|HIRAGANA LETTER|KATAKANA LETTER"
    scripts = (*names.split("|"), "CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH")
    # Myanmar's extension blocks hold letters of minority languages, and small kana beyond the BMP are historic.
    letters = [c for c in map(chr, range(0x0E00, 0x10000)) if unicodedata.name(c, "").startswith(scripts)]
    letters = [c for c in letters if not 0xA9E0 <= ord(c) <= 0xAA7F and not is_symbol(c)]
    assert len(letters) > 20_000
    counts = documents(*(c * 3 for c in letters)).words.num_words
    assert [c for c, count in zip(letters, counts.tolist(), strict=True) if count != 3] == []


def test_every_white_space_character_parts_words() -> None:
    spaces = [c for c in map(chr, range(0x110000)) if c.isspace()]
    others = ["\u200b", "\u200d", "\ufeff", "\u180e", "\u0000"]
    assert documents(*(f"a{c}b" for c in spaces)).words.num_words.tolist() == [2] * len(spaces)
    assert documents(*(f"a{c}b" for c in others)).words.num_words.tolist() == [1] * len(others)


def test_a_slice_is_read_like_the_batch() -> None:
    texts = ["one", "two words", "三字語", "", "a\na"]
    whole = documents(*texts)
    part = Documents(whole.batch.slice(1, 3))
    assert part.words.num_words.tolist() == [2, 3, 0]
    assert [tokens_found(part, d) for d in range(3)] == [tokens_found(whole, d) for d in range(1, 4)]
    assert len(Documents(whole.batch.slice(2, 0)).words.first) == len(documents().words.first) == 0


def test_documents_that_stay_keep_what_was_found() -> None:
    whole = documents("one two", "gone", "drei, vier")
    before = [tokens_found(whole, d) for d in (0, 2)]
    assert whole.lines.num_lines.tolist() == [1, 1, 1]
    kept = whole.filter(pa.array([True, False, True]))
    assert {"words", "lines"} <= kept.__dict__.keys()
    assert [tokens_found(kept, d) for d in range(2)] == before
    fresh = Documents(kept.batch)
    for name in ("num_words", "num_tokens", "num_characters"):
        assert np.array_equal(getattr(kept.words, name), getattr(fresh.words, name))


def test_a_list_counts_each_of_its_words_once() -> None:
    words = documents("the cat of the house", "The Cat OF", "", "of, the; (and)", "的人").words
    assert WordList(("the", "of", "and", "the")).count_distinct(words).tolist() == [2, 0, 0, 3, 0]
    assert WordList(("的", "是")).count_distinct(words).tolist() == [0, 0, 0, 0, 1]
    assert WordList(()).count_distinct(words).tolist() == [0] * 5
    assert WordList(tuple(f"w{i}" for i in range(64))).count_distinct(
        documents(" ".join(f"w{i}" for i in range(70))).words
    ).tolist() == [64]
