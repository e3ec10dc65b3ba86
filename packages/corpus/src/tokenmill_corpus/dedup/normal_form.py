"""The form in which texts are compared: their words, in lower case, and nothing else.

A character is, by the table of Unicode classes that the package carries:

    between words       white space, control characters, punctuation, mathematical and currency signs
    a word by itself    a character of a script written without spaces
    left out            joiners, soft hyphens, marks of direction, variation selectors, tags
    part of a word      everything else: letters, vowel signs and accents, numbers, emoji

Lower case is Unicode's mapping of single characters. Composed and decomposed characters are not the same: where a
corpus mixes them, bring it to one form before.
"""

import functools

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.hashing import mix
from tokenmill_core.compiled.utf8 import decode
from tokenmill_corpus.character_classes import SPACE, SYMBOL, UNSPACED, UPPER, character_classes

_BETWEEN, _PART, _ALONE, _LEFT_OUT = 0, 1, 2, 3
_CLASS_SHIFT = 24
_CODE_MASK = (1 << _CLASS_SHIFT) - 1
_CONTROLS = (range(0x20), range(0x7F, 0xA0))
_INVISIBLE = (
    range(0xAD, 0xAE),
    range(0x61C, 0x61D),
    range(0x180B, 0x1810),
    range(0x200B, 0x2010),
    range(0x202A, 0x202F),
    range(0x2060, 0x2070),
    range(0xFE00, 0xFE10),
    range(0xFEFF, 0xFF00),
    range(0xE0000, 0xE1000),
)
_START = 0xCBF29CE484222325
_FACTOR = 0x9FB21C651E98DF25
_SPACE = 0x20


@functools.cache
def normal_form_table() -> NDArray[np.uint32]:
    """For each code point what it is, in the highest 8 bits, and its lower case."""
    classes = character_classes()
    lower = np.arange(len(classes), dtype=np.uint32)
    for code in np.flatnonzero(classes & UPPER):
        mapped = chr(code).lower()
        lower[code] = ord(mapped) if len(mapped) == 1 else code
    kind = np.full(len(classes), _PART, np.uint32)
    kind[(classes & UNSPACED) != 0] = _ALONE
    kind[(classes & (SPACE | SYMBOL)) != 0] = _BETWEEN
    for codes, what in (*((codes, _BETWEEN) for codes in _CONTROLS), *((codes, _LEFT_OUT) for codes in _INVISIBLE)):
        kind[codes.start : codes.stop] = what
    return (kind << np.uint32(_CLASS_SHIFT)) | lower


@numba.njit(cache=True)
def _next(text: NDArray[np.uint8], i: int, table: NDArray[np.uint32]) -> tuple[int, int, int]:
    """(what it is, lower case, bytes) of the character at byte `i`."""
    code, width = (int(text[i]), 1) if text[i] < 0x80 else decode(text, i)
    entry = int(table[code])
    return entry >> _CLASS_SHIFT, entry & _CODE_MASK, width


@numba.njit(cache=True)
def hash_words(
    text: NDArray[np.uint8], first: int, last: int, table: NDArray[np.uint32], found: NDArray[np.uint64]
) -> int:
    """Write a hash of each word of `text[first:last]` to `found`, which has room for one a byte; their number.

    `table` is the `normal_form_table`.
    """
    # Places are unsigned, or each look into an array would first ask whether it counts from the end.
    start, factor, one = np.uint64(_START), np.uint64(_FACTOR), np.uint64(1)
    word, count, i, end = start, np.uint64(0), np.uint64(first), np.uint64(last)
    while i < end:
        # ASCII without a branch at the ends of words: each character writes the word so far, and only an end counts it.
        while i < end and text[i] < 0x80:
            entry = table[text[i]]
            i += one
            is_part = (entry >> np.uint32(_CLASS_SHIFT)) == _PART
            found[count] = word
            count += one if (not is_part) & (word != start) else np.uint64(0)
            longer = (word ^ np.uint64(entry & np.uint32(_CODE_MASK))) * factor
            word = longer if is_part else start
        if i == end:
            break
        kind, lower, width = _next(text, np.int64(i), table)  # type: ignore[arg-type]
        i += np.uint64(width)
        if kind == _PART:
            word = (word ^ np.uint64(lower)) * factor
        elif kind != _LEFT_OUT:
            found[count] = word
            count += one if word != start else np.uint64(0)
            word = start
            if kind == _ALONE:
                found[count] = (start ^ np.uint64(lower)) * factor
                count += one
    if word != start:
        found[count] = word
        count += one
    for j in range(count):
        found[j] = mix(found[j])
    return np.int64(count)  # type: ignore[return-value]


@numba.njit(cache=True)
def word_starts(
    text: NDArray[np.uint8], first: int, last: int, table: NDArray[np.uint32], starts: NDArray[np.int64]
) -> int:
    """Write the byte at which each word that `hash_words` finds starts to `starts`, which has room; their number."""
    count, i, inside = 0, first, False
    while i < last:
        kind, _, width = _next(text, i, table)
        if kind == _ALONE or (kind == _PART and not inside):
            starts[count] = i
            count += 1
        if kind != _LEFT_OUT:
            inside = kind == _PART
        i += width
    return count


@numba.njit(cache=True)
def hash_characters(
    text: NDArray[np.uint8], first: int, last: int, table: NDArray[np.uint32], found: NDArray[np.uint64]
) -> int:
    """The same of each character of the words, joined by single spaces. `found` has room for one a byte."""
    count, i, apart = 0, first, False
    while i < last:
        kind, lower, width = _next(text, i, table)
        i += width
        if kind == _BETWEEN:
            apart = count > 0
        elif kind != _LEFT_OUT:
            if apart:
                found[count] = mix(np.uint64(_SPACE))
                count += 1
                apart = False
            found[count] = mix(np.uint64(lower))
            count += 1
    return count
