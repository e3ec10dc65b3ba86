"""Runs of like characters: the steps that all splits are made of.

Each function takes the byte where a run begins, or goes on, and gives the byte where it ends, at most `end`.
"""

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.eight_bytes import EACH, HIGH, load, trailing_zeros
from tokenmill_core.compiled.kernel import at, kernel
from tokenmill_tokenizer.cutting.characters import LETTER, NUMBER, SPACE, TAIL, kind_at

NEWLINE, RETURN, BLANK, APOSTROPHE, SLASH = (ord(c) for c in "\n\r '/")
FOLD = 0x20
"""The bit that tells an ASCII small letter from its capital."""


@kernel
def letters(data: NDArray[np.uint8], i: int, end: int, kinds: NDArray[np.uint8]) -> int:
    """`\\p{L}*`."""
    while i < end:
        if i + 8 <= end:
            small = small_letters(load(data, i) | EACH * np.uint64(FOLD))
            i += small
            if small == 8:
                continue
        kind, width = kind_at(data, i, kinds)
        if not kind & LETTER:
            break
        i += width
    return i


@kernel
def tails(data: NDArray[np.uint8], i: int, end: int, kinds: NDArray[np.uint8]) -> int:
    """`[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*`."""
    while i < end:
        if i + 8 <= end:
            small = small_letters(load(data, i))
            i += small
            if small == 8:
                continue
        kind, width = kind_at(data, i, kinds)
        if not kind & TAIL:
            break
        i += width
    return i


@kernel
def small_letters(eight: np.uint64) -> int:
    """How many ASCII small letters the eight bytes begin with."""
    # With the high bits off, adding 0x80 - c to a byte sets its high bit where the byte is c or more.
    low = eight & ~HIGH
    within = (low + EACH * np.uint64(0x80 - 0x61)) & ~(low + EACH * np.uint64(0x80 - 0x7B))
    return trailing_zeros(~(within & ~eight) & HIGH) >> 3


@kernel
def numbers(data: NDArray[np.uint8], i: int, end: int, kinds: NDArray[np.uint8], most: int) -> int:
    """`\\p{N}{0,most}`."""
    while i < end and most > 0:
        kind, width = kind_at(data, i, kinds)
        if not kind & NUMBER:
            break
        i += width
        most -= 1
    return i


@kernel
def signs(data: NDArray[np.uint8], i: int, end: int, kinds: NDArray[np.uint8]) -> int:
    """`[^\\s\\p{L}\\p{N}]*`."""
    while i < end:
        kind, width = kind_at(data, i, kinds)
        if kind & (LETTER | NUMBER | SPACE):
            break
        i += width
    return i


@kernel
def is_line_end(byte: int) -> bool:
    """`[\\r\\n]`."""
    return byte in (NEWLINE, RETURN)


@kernel
def white_space(data: NDArray[np.uint8], i: int, end: int, kinds: NDArray[np.uint8], newlines_end: bool) -> int:
    """`\\s+(?!\\S)|\\s+`, where white space begins at byte `i`; with `newlines_end`, `\\s*[\\r\\n]+` before these."""
    last = begin = after_newline = i
    while i < end:
        kind, width = kind_at(data, i, kinds)
        if not kind & SPACE:
            break
        last = i
        i += width
        if newlines_end and is_line_end(at(data, last)):
            after_newline = i
    if after_newline > begin:
        return after_newline
    return i if i == end or last == begin else last


@kernel
def contraction(data: NDArray[np.uint8], i: int, end: int, fold: int) -> int:
    """`('s|'t|'re|'ve|'m|'ll|'d)?`, of any case with `fold` = FOLD, of lower case with 0."""
    if i + 2 > end or at(data, i) != APOSTROPHE:
        return i
    first = at(data, i + 1) | fold
    if first in (0x73, 0x74, 0x6D, 0x64):  # s t m d
        return i + 2
    if i + 3 > end:
        return i
    second = at(data, i + 2)
    if fold and at(data, i + 1) == 0xC5 and second == 0xBF:  # U+017F, the long s: its capital is S
        return i + 3
    second |= fold
    if (first == 0x6C and second == 0x6C) or (first in (0x72, 0x76) and second == 0x65):  # ll re ve
        return i + 3
    return i
