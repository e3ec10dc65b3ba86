"""Hashes of n-grams: of any length at any place of a text, from one pass over its words.

words w_0 w_1 … ─▶ sums s_0 = 0, s_(i+1) = s_i·B + w_i ─▶ n-gram at i = mix(s_(i+n) − s_i·B^n, n)
"""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.hashing import mix
from tokenmill_corpus.dedup.normal_form import hash_words

_BASE = np.uint64(0x9E3779B97F4A7C15)


def powers_of(lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """B^n for each length n."""
    return np.array([pow(int(_BASE), int(length), 1 << 64) for length in lengths], np.uint64)


@numba.njit(cache=True)
def sums_of_words(
    text: NDArray[np.uint8],
    first: int,
    last: int,
    table: NDArray[np.uint32],
    words: NDArray[np.uint64],
    sums: NDArray[np.uint64],
) -> int:
    """Write the sums of the words of `text[first:last]`, and give the number of words.

    `words` is for use in here, `sums` holds one more; both have room for `most_words(last - first)`.
    """
    count = hash_words(text, first, last, table, words)
    sums[0] = 0
    for i in range(count):
        sums[i + 1] = sums[i] * _BASE + words[i]
    return count


@numba.njit(cache=True)
def most_words(num_bytes: int) -> int:
    """How many words a text of so many bytes has at most, and one more."""
    return num_bytes // 2 + 2


@numba.njit(cache=True)
def ngram_at(sums: NDArray[np.uint64], i: int, length: int, power: np.uint64) -> np.uint64:
    """The hash of the `length` words from word `i` on."""
    return mix((sums[i + length] - sums[i] * power) ^ np.uint64(length))
