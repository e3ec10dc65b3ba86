"""Lines and paragraphs as parts of documents: where they are, their fingerprints, and how they are cut out.

line: what stands between newlines; blank ones, of white space alone, are none.
paragraph: lines between blank lines.

A cut line takes its newline with it, and a cut paragraph the blank lines after it: where blank lines before and after
what is cut would meet, only those before stay. At the end of a document nothing is left of separators but a newline,
where there was one.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.hashing import hash_bytes, mix
from tokenmill_corpus.dedup.normal_form import hash_words
from tokenmill_corpus.lines import NEWLINE, count_characters, strip

_NOT_COMPARED = 0
CARRIAGE_RETURN = 13


@numba.njit(cache=True)
def hash_units(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    table: NDArray[np.uint32],
    by_paragraph: bool,
    exact: bool,
    min_characters: int,
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Fingerprints (key, check) of all units, in order; key 0 for those that are not compared with others.

    Compared are the words of `table`, a normal form, or with `exact` the bytes without white space at the ends.
    """
    most = 1
    for d in range(len(offsets) - 1):
        most = max(most, offsets[d + 1] - offsets[d])
    words = np.empty(most, np.uint64)
    keys, checks, n = np.empty(1024, np.uint64), np.empty(1024, np.uint64), 0
    for d in range(len(offsets) - 1):
        i, end = offsets[d], offsets[d + 1]
        while i < end:
            first, last, i = _next_unit(data, i, end, by_paragraph)
            if first == last:
                continue
            if n == len(keys):
                keys, checks = np.concatenate((keys, keys)), np.concatenate((checks, checks))
            if count_characters(data, first, last) < min_characters:
                keys[n], checks[n] = _NOT_COMPARED, 0
            elif exact:
                keys[n], checks[n] = hash_bytes(data, first, last), _other_hash(data, first, last)
            else:
                count = hash_words(data, first, last, table, words)
                keys[n], checks[n] = _hash_of_words(words, count)
            n += 1
    return keys[:n], checks[:n]


@numba.njit(cache=True)
def _next_unit(data: NDArray[np.uint8], i: int, end: int, by_paragraph: bool) -> tuple[int, int, int]:
    """(start, end, where to go on) of the unit from byte `i` on, which starts a line; empty if there is a blank line.

    White space at the ends is left out.
    """
    stop = _line_end(data, i, end)
    first, last = strip(data, i, stop)
    if by_paragraph and first < last:
        while stop < end:
            next_stop = _line_end(data, stop, end)
            next_first, next_last = strip(data, stop, next_stop)
            if next_first == next_last:
                break
            last, stop = next_last, next_stop
    return first, last, stop


@numba.njit(cache=True)
def _line_end(data: NDArray[np.uint8], i: int, end: int) -> int:
    """The byte after the newline that ends the line at byte `i`, or the end."""
    while i < end and data[i] != NEWLINE:
        i += 1
    return min(i + 1, end)


@numba.njit(cache=True)
def _hash_of_words(words: NDArray[np.uint64], count: int) -> tuple[np.uint64, np.uint64]:
    """A fingerprint of 128 bits of the first `count` of `words`; key 0 where there are none."""
    if count == 0:
        return np.uint64(_NOT_COMPARED), np.uint64(0)
    key, check = np.uint64(count), ~np.uint64(count)
    for i in range(count):
        key = (key ^ words[i]) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
        check = (check + words[i]) * np.uint64(0xD1342543DE82EF95)
        check ^= check >> np.uint64(32)
    return mix(key) | np.uint64(1), check


@numba.njit(cache=True)
def _other_hash(text: NDArray[np.uint8], first: int, last: int) -> np.uint64:
    """A hash of bytes that goes its own ways, beside `hash_bytes`."""
    h = np.uint64(last - first)
    for i in range(first, last):
        h = (h + np.uint64(text[i]) + np.uint64(1)) * np.uint64(0xD1342543DE82EF95)
        h ^= h >> np.uint64(32)
    return h


@numba.njit(cache=True)
def cut_units(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], by_paragraph: bool, goes: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
    """(document, start, end) of what is cut where `goes` says so of each unit, and the number of units.

    `goes` may go on with units of other documents.
    """
    spans, n, unit = np.empty((3, 1024), np.int64), 0, 0
    for d in range(len(offsets) - 1):
        origin, i, end = offsets[d], offsets[d], offsets[d + 1]
        first_span = n
        after_cut, after_blank = False, True
        text_end = origin
        while i < end:
            first, last, next_i = _next_unit(data, i, end, by_paragraph)
            blank = first == last
            cut = after_cut and after_blank if blank else goes[unit]
            unit += not blank
            if cut:
                if n > first_span and spans[2, n - 1] == i - origin:
                    spans[2, n - 1] = next_i - origin
                else:
                    if n + 1 == spans.shape[1]:
                        spans = np.concatenate((spans, spans), axis=1)
                    spans[0, n], spans[1, n], spans[2, n] = d, i - origin, next_i - origin
                    n += 1
                after_cut = True
            else:
                after_cut, after_blank = False, blank
                text_end = text_end if blank else next_i
            i = next_i
        if after_cut:
            n = _cut_to_end(data, origin, text_end, end, d, spans, n, first_span)
    return spans[0, :n].copy(), spans[1, :n].copy(), spans[2, :n].copy(), unit


@numba.njit(cache=True)
def _cut_to_end(
    data: NDArray[np.uint8],
    origin: int,
    text_end: int,
    end: int,
    document: int,
    spans: NDArray[np.int64],
    n: int,
    first_span: int,
) -> int:
    """Cut all from `text_end`, where the last line that stays ends, and that newline too if the text ended without."""
    if text_end > origin and data[end - 1] != NEWLINE:
        text_end -= 1
        text_end -= text_end > origin and data[text_end - 1] == CARRIAGE_RETURN
    while n > first_span and spans[1, n - 1] >= text_end - origin:
        n -= 1
    spans[0, n], spans[1, n], spans[2, n] = document, text_end - origin, end - origin
    return n + 1
