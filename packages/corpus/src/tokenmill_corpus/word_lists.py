"""How many words of a list a document uses."""

from collections.abc import Sequence

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import column_buffers
from tokenmill_corpus.words import Words, find_words

MAX_WORDS = 64
"""A list's words are counted as bits of one integer."""


class WordList:
    """At most 64 different words, as written: `The` is not `the`. A word that tokens never equal never occurs."""

    def __init__(self, words: Sequence[str]) -> None:
        assert len(words) <= MAX_WORDS, len(words)
        found = find_words(column_buffers(pa.array([*words, ""], pa.large_string())))
        single = found.num_tokens == 1
        self._table = _table_of(np.unique(found.hashes[found.first[single]]))

    def count_distinct(self, words: Words) -> NDArray[np.int64]:
        """How many words of the list each document holds, each counted once."""
        return _count_distinct(words, *self._table)


def _table_of(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """(hashes, their bits) by slot of an open-addressing table, 0 where a slot is empty."""
    keys, bits = np.zeros(SLOTS, np.uint64), np.zeros(SLOTS, np.uint64)
    for bit, key in enumerate(hashes.tolist()):
        slot = key % SLOTS
        while keys[slot]:
            slot = (slot + 1) % SLOTS
        keys[slot], bits[slot] = key, 1 << bit
    return keys, bits


SLOTS = 512


@numba.njit(cache=True)
def _count_distinct(words: Words, keys: NDArray[np.uint64], bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    out = np.zeros(len(words.first), np.int64)
    for d in range(len(out)):
        seen = np.uint64(0)
        for k in range(words.first[d], words.last[d]):
            slot = np.int64(words.hashes[k] % np.uint64(SLOTS))
            while keys[slot] != 0:
                if keys[slot] == words.hashes[k]:
                    seen |= bits[slot]
                    break
                slot = (slot + 1) % SLOTS
        while seen:
            seen &= seen - np.uint64(1)
            out[d] += 1
    return out
