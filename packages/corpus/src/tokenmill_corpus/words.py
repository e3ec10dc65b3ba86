"""Words and symbols: the tokens that the measures count.

    text ─▶ tokens, in order ─▶ for each: a hash, its place in the document, whether it is a word and has a letter

symbol: a run of one and the same punctuation or symbol character at the start or the end of what stands between white
    space, `(`, `,`, `...`, and a dash between letters, `well-known`. Elsewhere inside such characters are part of the
    word: `don't`, `3.14`, `a/b`.
word: the rest of what stands between white space; in scripts written without spaces (Han, Kana, Thai, Lao, Khmer,
    Burmese) each character is a word. Emoji and other pictographs are word characters, not symbols.
place: characters (code points) from the document's start, where each run of white space counts as one character, and
    white space at the start as none. So blank lines and indentation change no measure.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.eight_bytes import alphanumeric_run, load
from tokenmill_core.compiled.hashing import hash_bytes
from tokenmill_core.compiled.kernel import at, kernel
from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_core.compiled.utf8 import decode
from tokenmill_corpus.character_classes import (
    LETTER,
    SPACE,
    SYMBOL,
    UNSPACED,
    character_classes,
    class_at,
    class_before,
)

IS_WORD = 1
HAS_LETTER = 2
IS_UNSPACED = 4
"""Bits of `Words.kinds`; the last is a word of one character in a script written without spaces."""


class Words(NamedTuple):
    """Tokens of a batch; compiled code takes it as it is. Those of document d are `first[d]:last[d]`."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    num_words: NDArray[np.int64]
    """Words of each document."""
    hashes: NDArray[np.uint64]
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]
    kinds: NDArray[np.uint8]

    @property
    def num_tokens(self) -> NDArray[np.int64]:
        """Words and symbols of each document."""
        return self.last - self.first

    @property
    def num_characters(self) -> NDArray[np.int64]:
        """Characters of each document: a run of white space is one, at the ends none."""
        filled = self.last > self.first
        num_characters = np.zeros(len(self.first), np.int64)
        num_characters[filled] = self.ends[self.last[filled] - 1]
        return num_characters

    def filter(self, keep: NDArray[np.bool_]) -> "Words":
        """Those of the documents for which `keep` holds."""
        return self._replace(first=self.first[keep], last=self.last[keep], num_words=self.num_words[keep])


def find_words(text: TextBuffers) -> Words:
    """The tokens of all documents, in one pass."""
    # At most a token a byte; memory that is never written is never really taken.
    room = int(text.offsets[-1] - text.offsets[0])
    hashes, kinds = np.empty(room, np.uint64), np.empty(room, np.uint8)
    starts, ends = np.empty(room, np.int32), np.empty(room, np.int32)
    first, last, num_words = (np.empty(len(text), np.int64) for _ in range(3))
    words = Words(first, last, num_words, hashes, starts, ends, kinds)
    n = _find_words(text.data, text.offsets, character_classes(), words)
    return words._replace(hashes=hashes[:n], starts=starts[:n], ends=ends[:n], kinds=kinds[:n])


@kernel
def _find_words(data: NDArray[np.uint8], offsets: NDArray[np.int64], classes: NDArray[np.uint8], out: Words) -> int:
    """Fill `out`, and say how many tokens there are."""
    token = 0
    for d in range(len(offsets) - 1):
        i, end, place, gap, words = offsets[d], offsets[d + 1], 0, 0, 0
        first = token
        while i < end:
            code, width = decode(data, i)
            what = at(classes, code)
            if what & SPACE:
                gap = int(token > first)
                i += width
                continue
            start, begin, kind = place + gap, i, IS_WORD
            gap = 0
            if what & SYMBOL:
                i, place = _symbol(data, i, end, code, start)
                kind = 0
            elif what & UNSPACED:
                i, place = i + width, start + 1
                kind |= IS_UNSPACED | (HAS_LETTER * (what & LETTER))
            else:
                i, place, letter = _word(data, i, end, classes, start)
                kind |= HAS_LETTER * letter
            words += kind & IS_WORD
            out.hashes[token] = hash_bytes(data, begin, i)
            out.starts[token], out.ends[token], out.kinds[token] = start, place, kind
            token += 1
        out.first[d], out.last[d], out.num_words[d] = first, token, words
    return token


@kernel
def _symbol(data: NDArray[np.uint8], i: int, end: int, symbol: int, place: int) -> tuple[int, int]:
    """(byte after, place after) of the run of `symbol` that begins at byte `i`."""
    while i < end:
        code, width = decode(data, i)
        if code != symbol:
            break
        i += width
        place += 1
    return i, place


@kernel
def _word(data: NDArray[np.uint8], i: int, end: int, classes: NDArray[np.uint8], place: int) -> tuple[int, int, int]:
    """(byte after, place after, has a letter) of the word at byte `i`: up to the last character that is no symbol."""
    letter, word_i, word_place = 0, i, place
    while i < end:
        if i + 8 <= end:
            run, letters = alphanumeric_run(load(data, i))
            if run > 0:
                i += run
                place += run
                letter |= letters
                word_i, word_place = i, place
                if run == 8:
                    continue
        code, width = decode(data, i)
        what = at(classes, code)
        if what & (SPACE | UNSPACED):
            break
        if what & SYMBOL:
            if _is_dash(code) and _between_letters(data, i, width, end, classes):
                break
        else:
            letter |= what & LETTER
            word_i, word_place = i + width, place + 1
        i += width
        place += 1
    return word_i, word_place, letter


@kernel
def _is_dash(code: int) -> bool:
    return code == 0x2D or 0x2010 <= code <= 0x2015


@kernel
def _between_letters(data: NDArray[np.uint8], i: int, width: int, end: int, classes: NDArray[np.uint8]) -> bool:
    """Whether letters stand on both sides of the character at byte `i`, which is not the first one."""
    if i + width == end or not class_before(data, i, classes)[0] & LETTER:
        return False
    return class_at(data, i + width, classes)[0] & LETTER != 0
