"""Listed words and phrases in texts.

Text and list are split alike: white space, punctuation and symbols part words; in scripts written without spaces each
character is a word, so an entry in them is found wherever its characters stand together. Case does not count (Unicode's
simple case folding).
"""

from functools import cache, lru_cache
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_core.compiled.utf8 import decode
from tokenmill_corpus.character_classes import SPACE, SYMBOL, UNSPACED, character_classes
from tokenmill_corpus.filters.blocklist.lists import read_entries
from tokenmill_corpus.filters.blocklist.sets import SEED, contains, key_of, make_set, step
from tokenmill_corpus.filters.blocklist.urls import buffers_of


class WordList(NamedTuple):
    """The words and phrases of a list."""

    keys: NDArray[np.uint64]
    """The set of them."""
    lengths: NDArray[np.int64]
    """How many words an entry may have, in order, without repeats."""


class WordCounts(NamedTuple):
    """Of each document."""

    blocked: NDArray[np.int64]
    """Places where an entry begins."""
    words: NDArray[np.int64]


@lru_cache(maxsize=8)
def word_list(path: str) -> WordList:
    """The list at `path`."""
    entries = buffers_of(list(read_entries(path)))
    hashes, firsts = _words(entries.data, np.ascontiguousarray(entries.offsets), character_classes(), _folded())
    keys = _sequence_keys(hashes, firsts[:-1], np.diff(firsts))
    lengths = np.unique(np.diff(firsts))
    return WordList(make_set(keys[np.diff(firsts) > 0]), lengths[lengths > 0])


def count_listed(text: TextBuffers, listed: WordList) -> WordCounts:
    """How often each document uses what is on the list, and how many words it has."""
    hashes, firsts = _words(text.data, np.ascontiguousarray(text.offsets), character_classes(), _folded())
    return WordCounts(_count(hashes, firsts, listed.keys, listed.lengths), np.diff(firsts))


@cache
def _folded() -> NDArray[np.int32]:
    """Code point ─▶ what stands for it whatever its case; only for those below 0x20000, as no case lies beyond."""
    return np.array(
        [ord(folded) if len(folded := chr(code).casefold()) == 1 else code for code in range(0x20000)], np.int32
    )


@numba.njit(cache=True)
def _words(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], classes: NDArray[np.uint8], folded: NDArray[np.int32]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """(hashes of all words, where those of each document begin)."""
    hashes = np.empty(offsets[-1] - offsets[0] + 1, np.uint64)
    firsts, count = np.zeros_like(offsets), 0
    for d in range(len(offsets) - 1):
        i, h = offsets[d], SEED
        while i < offsets[d + 1]:
            code, width = decode(data, i)
            i += width
            what = classes[code]
            if h != SEED and what & (SPACE | SYMBOL | UNSPACED):
                hashes[count] = h
                count, h = count + 1, SEED
            if what & (SPACE | SYMBOL):
                continue
            h = step(h, folded[code] if code < len(folded) else code)
            if what & UNSPACED:
                hashes[count] = h
                count, h = count + 1, SEED
        if h != SEED:
            hashes[count] = h
            count += 1
        firsts[d + 1] = count
    return hashes[:count], firsts


@numba.njit(cache=True)
def _sequence_keys(
    hashes: NDArray[np.uint64], firsts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """A key for each sequence of words."""
    keys = np.empty(len(firsts), np.uint64)
    for k in range(len(keys)):
        h = SEED
        for i in range(firsts[k], firsts[k] + lengths[k]):
            h = step(h, hashes[i])
        keys[k] = key_of(h)
    return keys


@numba.njit(cache=True)
def _count(
    hashes: NDArray[np.uint64], firsts: NDArray[np.int64], listed: NDArray[np.uint64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    counts = np.zeros(len(firsts) - 1, np.int64)
    for d in range(len(counts)):
        for start in range(firsts[d], firsts[d + 1]):
            h, i = SEED, start
            for length in lengths:
                if start + length > firsts[d + 1]:
                    break
                while i < start + length:
                    h = step(h, hashes[i])
                    i += 1
                if contains(listed, key_of(h)):
                    counts[d] += 1
                    break
    return counts
