"""Where the documents of a batch hold n-grams of benchmarks."""

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_corpus.decontamination.index import Index, may_begin
from tokenmill_corpus.decontamination.ngrams import most_words, ngram_at, powers_of, sums_of_words
from tokenmill_corpus.dedup.normal_form import normal_form_table


@dataclass(frozen=True)
class Hits:
    """n-gram `ngram[i]` of the index stands in `document[i]` from word `word[i]` on, for `length[i]` words."""

    document: NDArray[np.int64]
    word: NDArray[np.int64]
    length: NDArray[np.int64]
    ngram: NDArray[np.int64]


def find_hits(text: TextBuffers, index: Index) -> Hits:
    """All of them, in the order of the text."""
    if not len(index.keys) or not len(text):
        return Hits(*np.empty((4, 0), np.int64))
    tables = (normal_form_table(), index.keys, index.beginnings, index.lengths, powers_of(index.lengths))
    found = _find(text.data, text.offsets, *tables)
    return Hits(*np.ascontiguousarray(found.T))


@numba.njit(cache=True)
def _find(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    table: NDArray[np.uint32],
    keys: NDArray[np.uint64],
    beginnings: NDArray[np.uint64],
    lengths: NDArray[np.int64],
    powers: NDArray[np.uint64],
) -> NDArray[np.int64]:
    room = most_words(np.diff(offsets).max())
    words, sums = np.empty(room, np.uint64), np.empty(room, np.uint64)
    found, n = np.empty((1024, 4), np.int64), 0
    shortest, power = lengths[0], powers[0]
    for d in range(len(offsets) - 1):
        count = sums_of_words(data, offsets[d], offsets[d + 1], table, words, sums)
        for i in range(count - shortest + 1):
            if not may_begin(beginnings, ngram_at(sums, i, shortest, power)):
                continue
            for k in range(len(lengths)):
                if i + lengths[k] > count:
                    break
                place = _place_of(ngram_at(sums, i, lengths[k], powers[k]), keys)
                if place < 0:
                    continue
                if n == len(found):
                    found = np.concatenate((found, np.empty_like(found)))
                found[n, 0], found[n, 1], found[n, 2], found[n, 3] = d, i, lengths[k], place
                n += 1
    return found[:n]


@numba.njit(cache=True)
def _place_of(key: np.uint64, keys: NDArray[np.uint64]) -> int:
    """Where `key` stands in `keys`, or -1."""
    place = lower_bound(keys, key)
    return place if place < len(keys) and keys[place] == key else -1


@numba.njit(cache=True)
def lower_bound(values: NDArray[Any], value: Any) -> int:
    """How many of the sorted `values` are less than `value`. NumPy's own, compiled, looks through all of them."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low
