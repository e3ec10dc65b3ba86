"""Gopher's rules of quality (Rae et al. 2021, appendix A1.1), with its thresholds; all of them are inclusive.

Words, symbols (both are tokens) and characters are those of `words.py`, lines those of `lines.py`. A rule is switched
off by a ratio of 1.0 (a `min_` ratio: 0), by a count of 0, or by a maximum beyond all texts.

The rules were made for English. Where they say something else about other languages: a character of a script written
without spaces counts as a word, and in the mean length of words as one of `UNSPACED_LENGTH` characters; the stop words
are English ones unless others are named (the family `stop_words` has lists for many languages).
"""

import numba
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tokenmill_core.compiled.eight_bytes import count_byte, find_byte
from tokenmill_core.compiled.kernel import at, kernel
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Family, Outcome, at_least, at_most
from tokenmill_corpus.lines import Lines
from tokenmill_corpus.ratios import ratio
from tokenmill_corpus.word_lists import MAX_WORDS, WordList
from tokenmill_corpus.words import HAS_LETTER, IS_UNSPACED, IS_WORD, Words

HASH, HYPHEN = ord("#"), ord("-")
ELLIPSIS, BULLET, THREE_DOTS = "…".encode(), "•".encode(), b"..."
UNSPACED_LENGTH = 5
"""What a word of one character counts in the mean length of words: as much as a common word of other scripts."""


class GopherQuality(Family):
    """Drops documents that do not read like prose."""

    min_words: int = Field(default=50, ge=0)
    """Fewest words."""
    max_words: int = Field(default=100_000, ge=0)
    """Most words."""
    min_mean_word_length: float = Field(default=3, ge=0)
    """Smallest mean length of words, in characters."""
    max_mean_word_length: float = Field(default=10, ge=0)
    """Largest mean length of words, in characters."""
    max_hash_ratio: float = Field(default=0.1, ge=0)
    """Most `#` for each token."""
    max_ellipsis_ratio: float = Field(default=0.1, ge=0)
    """Most ellipses (`...` or `…`) for each token."""
    max_bullet_line_ratio: float = Field(default=0.9, ge=0)
    """Largest share of lines that start with a bullet (`•` or `-`)."""
    max_ellipsis_line_ratio: float = Field(default=0.3, ge=0)
    """Largest share of lines that end with an ellipsis."""
    min_alphabetic_token_ratio: float = Field(default=0.8, ge=0, le=1)
    """Smallest share of tokens with a letter in them."""
    min_stop_words: int = Field(default=2, ge=0)
    """Fewest different words of `stop_words`."""
    stop_words: tuple[str, ...] = Field(
        default=("the", "be", "to", "of", "and", "that", "have", "with"), max_length=MAX_WORDS
    )
    """Words of which prose uses some, as written there: upper and lower case differ."""

    def apply(self, documents: Documents) -> Outcome:
        """The rules in the order of the settings."""
        text, words, lines = documents.text, documents.words, documents.lines
        alphabetic, length = _count_words(words).T
        hashes, ellipses = _count_symbols(text.data, text.offsets).T
        bullet_lines, ellipsis_lines = _count_lines(text.data, text.offsets, lines).T
        mean_length = ratio(length, words.num_words)
        rules = (
            at_least("min_words", words.num_words, self.min_words),
            at_most("max_words", words.num_words, self.max_words),
            at_least("min_mean_word_length", mean_length, self.min_mean_word_length),
            at_most("max_mean_word_length", mean_length, self.max_mean_word_length),
            at_most("max_hash_ratio", ratio(hashes, words.num_tokens), self.max_hash_ratio),
            at_most("max_ellipsis_ratio", ratio(ellipses, words.num_tokens), self.max_ellipsis_ratio),
            at_most("max_bullet_line_ratio", ratio(bullet_lines, lines.num_lines), self.max_bullet_line_ratio),
            at_most("max_ellipsis_line_ratio", ratio(ellipsis_lines, lines.num_lines), self.max_ellipsis_line_ratio),
            at_least(
                "min_alphabetic_token_ratio", ratio(alphabetic, words.num_tokens), self.min_alphabetic_token_ratio
            ),
            at_least("min_stop_words", WordList(self.stop_words).count_distinct(words), self.min_stop_words),
        )
        return Outcome(rules)


@numba.njit(cache=True)
def _count_words(words: Words) -> NDArray[np.int64]:
    """Columns: tokens with a letter, length of all words."""
    out = np.zeros((len(words.first), 2), np.int64)
    for d in range(len(out)):
        alphabetic, length = 0, 0
        for k in range(words.first[d], words.last[d]):
            kind = at(words.kinds, k)
            alphabetic += (kind & HAS_LETTER) != 0
            length += ((kind & IS_WORD) != 0) * (at(words.ends, k) - at(words.starts, k))
            length += ((kind & IS_UNSPACED) != 0) * (UNSPACED_LENGTH - 1)
        out[d, 0], out[d, 1] = alphabetic, length
    return out


@numba.njit(cache=True)
def _count_symbols(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Columns: number signs, ellipses."""
    out = np.zeros((len(offsets) - 1, 2), np.int64)
    for d in range(len(offsets) - 1):
        start, end = offsets[d], offsets[d + 1]
        out[d, 0] = count_byte(data, start, end, HASH)
        out[d, 1] = _count(THREE_DOTS, data, start, end) + _count(ELLIPSIS, data, start, end)
    return out


@kernel
def _count(three: bytes, data: NDArray[np.uint8], i: int, end: int) -> int:
    """How often these three bytes stand in `data[i:end]`, none overlapping the ones before."""
    count = 0
    while True:
        i = find_byte(data, i, end, three[0])
        if i == end:
            return count
        found = _stands_at(three, data, i, end)
        count += found
        i += 3 if found else 1


@numba.njit(cache=True)
def _count_lines(data: NDArray[np.uint8], offsets: NDArray[np.int64], lines: Lines) -> NDArray[np.int64]:
    """Columns: lines that start with a bullet, lines that end with an ellipsis."""
    out = np.zeros((len(lines.first), 2), np.int64)
    for d in range(len(out)):
        for k in range(lines.first[d], lines.last[d]):
            start, end = offsets[d] + lines.starts[k], offsets[d] + lines.ends[k]
            out[d, 0] += data[start] == HYPHEN or _stands_at(BULLET, data, start, end)
            tail = max(start, end - 3)
            out[d, 1] += _stands_at(THREE_DOTS, data, tail, end) or _stands_at(ELLIPSIS, data, tail, end)
    return out


@kernel
def _stands_at(three: bytes, data: NDArray[np.uint8], i: int, end: int) -> bool:
    """Whether these three bytes stand at byte `i`, before `end`."""
    return i + 3 <= end and data[i] == three[0] and data[i + 1] == three[1] and data[i + 2] == three[2]
