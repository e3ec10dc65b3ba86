"""Words as one row of symbols, an int32 a byte, on which merges work.

`STOP` stands before, between and behind words. A token holds its id at its first and at its last byte, so both its
neighbours are found at once, and a word of a megabyte costs no more than as many bytes of short words.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.kernel import at, kernel
from tokenmill_core.errors import InputError

STOP = -1
"""The symbol between words."""
GONE = -2
"""The symbol where a token began before it became the right half of another."""


class Words(NamedTuple):
    """Different words and how often each occurs: word w is `data[offsets[w]:offsets[w + 1]]`."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]


class Symbols(NamedTuple):
    """See the module's docstring."""

    row: NDArray[np.int32]
    order: NDArray[np.int64]
    """Words in the order in which they stand in `row`: that of falling counts."""
    ends: NDArray[np.int64]
    """Behind the last symbol of each word, in that order."""
    class_ends: NDArray[np.int64]
    """Words of equal count are a class: `class_counts[c]` is the count at all places before `class_ends[c]`."""
    class_counts: NDArray[np.int64]


def lay_out(words: Words, byte_ids: NDArray[np.int32]) -> Symbols:
    """The symbols of `words`, where byte b has the id `byte_ids[b]`."""
    if len(words.data) + len(words.counts) >= np.iinfo(np.int32).max:
        raise InputError(
            f"the sample has {len(words.data):,} bytes of different words, more than the 2,147,483,647 that can be "
            "merged at once; take a smaller one with --sample-bytes"
        )
    order = np.argsort(-words.counts, kind="stable")
    ends = np.cumsum(np.diff(words.offsets)[order] + 1)
    row = np.full(len(words.data) + len(order) + 1, STOP, np.int32)
    _copy(words, order, byte_ids, row)
    counts = words.counts[order]
    last_of_class = np.flatnonzero(np.diff(counts, append=-1))
    return Symbols(row, order, ends, ends[last_of_class], counts[last_of_class])


@numba.njit(cache=True, nogil=True)
def _copy(words: Words, order: NDArray[np.int64], byte_ids: NDArray[np.int32], out: NDArray[np.int32]) -> None:
    place = 1
    for word in order:
        for i in range(words.offsets[word], words.offsets[word + 1]):
            out[place] = byte_ids[words.data[i]]
            place += 1
        place += 1


@kernel
def class_at(ends: NDArray[np.int64], c: int, place: int) -> int:
    """The first class from `c` on that ends behind `place`: a search in steps that grow, as it is often near."""
    step = 1
    while at(ends, c) <= place:
        if c + step < len(ends) and at(ends, c + step) <= place:
            c += step
            step *= 2
        elif step > 1:
            step = 1
        else:
            c += 1
    return c


def count_tokens(symbols: Symbols, lengths: NDArray[np.int32]) -> NDArray[np.int64]:
    """Tokens of each word, in the order in which the words were given; `lengths` has the bytes of each token."""
    tokens = np.zeros(len(symbols.order), np.int64)
    _count_tokens(symbols.row, symbols.order, symbols.ends, lengths, tokens)
    return tokens


@numba.njit(cache=True, nogil=True)
def _count_tokens(
    row: NDArray[np.int32],
    order: NDArray[np.int64],
    ends: NDArray[np.int64],
    lengths: NDArray[np.int32],
    tokens: NDArray[np.int64],
) -> None:
    place = 1
    for word in range(len(order)):
        while place < ends[word]:
            place += lengths[row[place]]
            tokens[order[word]] += 1
        place += 1
