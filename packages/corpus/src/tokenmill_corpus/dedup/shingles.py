"""Shingles: a document as its runs of n words, or of n characters, each a 64-bit hash.

A document of fewer than n words is one shingle of all of them, so that copies of short documents still meet. One
without any word has no shingle, and is a near-duplicate of nothing.
"""

from enum import StrEnum

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.hashing import mix
from tokenmill_corpus.dedup.normal_form import hash_characters, hash_words

_BASE = 0xD1342543DE82EF95


class Unit(StrEnum):
    """What a shingle is a run of."""

    WORD = "word"
    CHARACTER = "character"


@numba.njit(cache=True)
def hash_shingles(
    text: NDArray[np.uint8],
    first: int,
    last: int,
    table: NDArray[np.uint32],
    by_character: bool,
    ngram: int,
    found: NDArray[np.uint64],
) -> int:
    """Write the hash of each shingle of `text[first:last]`, repeats included, to `found`; their number.

    `table` is the `normal_form_table`, and `found` has room for one shingle a byte.
    """
    if by_character:
        count = hash_characters(text, first, last, table, found)
    else:
        count = hash_words(text, first, last, table, found)
    return hash_runs(found, count, ngram)


@numba.njit(cache=True)
def hash_runs(units: NDArray[np.uint64], count: int, ngram: int) -> int:
    """Replace the first `count` of `units` by the hashes of their runs, and give the number of these."""
    if count == 0:
        return 0
    base, width = np.uint64(_BASE), min(ngram, count)
    run, leaving = np.uint64(0), np.uint64(1)
    for i in range(width):
        run = run * base + units[i]
        leaving *= base
    for i in range(count - width):
        oldest = units[i]
        units[i] = mix(run)
        run = run * base + units[i + width] - oldest * leaving
    units[count - width] = mix(run)
    return count - width + 1
