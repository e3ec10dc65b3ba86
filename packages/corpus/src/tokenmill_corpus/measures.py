"""Measures of a document, taken over UTF-8 bytes by one compiled pass.

word: a run of characters without white space; in scripts written without spaces (Han, Kana, Thai, Lao, Khmer, Burmese)
    every character is a word, so that such text is not "too short".
line: text between newlines, white space at both ends (ASCII) left out; blank lines do not count.
paragraph: lines between blank lines, with the same care.
duplicate: a line (paragraph) equal to an earlier one of the same document; the first one is not a duplicate.
"""

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_corpus.text_buffers import TextBuffers


@dataclass(frozen=True)
class Measures:
    """One value a document. Ratios of a document without lines are 0."""

    num_words: NDArray[np.int64]
    duplicate_line_ratio: NDArray[np.float64]
    """Duplicate lines over lines."""
    duplicate_line_byte_ratio: NDArray[np.float64]
    """Bytes of duplicate lines over bytes of lines."""
    duplicate_paragraph_ratio: NDArray[np.float64]
    """Duplicate paragraphs over paragraphs."""


def measure(text: TextBuffers) -> Measures:
    """All measures of every document."""
    table = _measure(text.data, text.offsets)
    lines, line_bytes, paragraphs = (np.maximum(table[:, i], 1) for i in (1, 3, 5))
    return Measures(
        num_words=table[:, 0],
        duplicate_line_ratio=table[:, 2] / lines,
        duplicate_line_byte_ratio=table[:, 4] / line_bytes,
        duplicate_paragraph_ratio=table[:, 6] / paragraphs,
    )


@numba.njit(cache=True)
def _measure(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Columns: words, lines, duplicate lines, line bytes, duplicate line bytes, paragraphs, duplicate paragraphs."""
    num_documents = len(offsets) - 1
    out = np.zeros((num_documents, 7), np.int64)
    for d in range(num_documents):
        text = data[offsets[d] : offsets[d + 1]]
        out[d, 0] = _count_words(text)
        _count_duplicates(text, out[d])
    return out


@numba.njit(cache=True)
def _count_words(text: NDArray[np.uint8]) -> int:
    words, inside, i, n = 0, False, 0, len(text)
    while i < n:
        code, width = _decode(text, i)
        i += width
        if _is_space(code):
            inside = False
        elif _is_unspaced(code):
            words += 1
            inside = False
        elif not inside:
            words += 1
            inside = True
    return words


@numba.njit(cache=True)
def _decode(text: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """(code point, bytes) of the character at byte `i` of valid UTF-8."""
    first = int(text[i])
    if first < 0x80:
        return first, 1
    if first < 0xE0:
        return ((first & 0x1F) << 6) | (text[i + 1] & 0x3F), 2
    if first < 0xF0:
        return ((first & 0x0F) << 12) | ((text[i + 1] & 0x3F) << 6) | (text[i + 2] & 0x3F), 3
    return (
        ((first & 0x07) << 18) | ((text[i + 1] & 0x3F) << 12) | ((text[i + 2] & 0x3F) << 6) | (text[i + 3] & 0x3F)
    ), 4


@numba.njit(cache=True)
def _is_space(code: int) -> bool:
    """Whether `str.isspace` holds."""
    if code < 0x80:
        return code == 0x20 or 0x09 <= code <= 0x0D or 0x1C <= code <= 0x1F
    return code in (0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000) or 0x2000 <= code <= 0x200A


@numba.njit(cache=True)
def _is_unspaced(code: int) -> bool:
    if code < 0x0E00:
        return False
    return (
        code <= 0x0EFF  # Thai, Lao
        or 0x1000 <= code <= 0x109F  # Burmese
        or 0x1780 <= code <= 0x17FF  # Khmer
        or 0x3041 <= code <= 0x30FF  # Kana
        or 0x31F0 <= code <= 0x31FF
        or 0x3400 <= code <= 0x4DBF  # Han
        or 0x4E00 <= code <= 0x9FFF
        or 0xF900 <= code <= 0xFAFF
        or 0x20000 <= code <= 0x323AF
    )


@numba.njit(cache=True)
def _count_duplicates(text: NDArray[np.uint8], out: NDArray[np.int64]) -> None:
    """Lines and paragraphs in one walk; a paragraph is known by the hashes of its lines."""
    n = len(text)
    num_breaks = 1
    for i in range(n):
        num_breaks += text[i] == 10
    lines, paragraphs = _empty_set(num_breaks), _empty_set(num_breaks)
    paragraph, start = np.uint64(0), 0
    for i in range(n + 1):
        if i < n and text[i] != 10:
            continue
        first, last = _strip(text, start, i)
        start = i + 1
        if first < last:
            key = _hash(text, first, last)
            seen = _add(lines, key)
            out[1] += 1
            out[2] += seen
            out[3] += last - first
            out[4] += (last - first) * seen
            paragraph = _mix(paragraph ^ key)
        if paragraph != 0 and (first >= last or i == n):
            out[5] += 1
            out[6] += _add(paragraphs, paragraph)
            paragraph = np.uint64(0)


@numba.njit(cache=True)
def _strip(text: NDArray[np.uint8], first: int, last: int) -> tuple[int, int]:
    # Bytes, not characters: 0x85 and 0xA0 are white space as code points, but inside UTF-8 the end of "Å" and "à".
    while first < last and text[first] < 0x80 and _is_space(int(text[first])):
        first += 1
    while last > first and text[last - 1] < 0x80 and _is_space(int(text[last - 1])):
        last -= 1
    return first, last


@numba.njit(cache=True)
def _mix(x: np.uint64) -> np.uint64:
    """A bijection of 64 bits that spreads every bit (the splitmix64 finaliser)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@numba.njit(cache=True)
def _hash(text: NDArray[np.uint8], first: int, last: int) -> np.uint64:
    h = np.uint64(0xCBF29CE484222325) ^ np.uint64(last - first)
    for i in range(first, last):
        h = (h ^ np.uint64(text[i])) * np.uint64(0x100000001B3)
    return _mix(h) | np.uint64(1)  # never 0, which marks an empty slot


@numba.njit(cache=True)
def _empty_set(capacity: int) -> NDArray[np.uint64]:
    size = 8
    while size < 2 * capacity:
        size *= 2
    return np.zeros(size, np.uint64)


@numba.njit(cache=True)
def _add(table: NDArray[np.uint64], key: np.uint64) -> int:
    """1 if `key` was in the set, else put it in and give 0."""
    mask = np.uint64(len(table) - 1)
    slot = (key >> np.uint64(1)) & mask
    while table[slot] != 0:
        if table[slot] == key:
            return 1
        slot = (slot + np.uint64(1)) & mask
    table[slot] = key
    return 0
