"""How much of a document repeated n-grams cover, for n from 2 to 10 in one go.

An (n+1)-gram that occurs twice begins with an n-gram that occurs twice. So only the places whose n-gram is repeated
are looked at again for n + 1, which in ordinary text leaves few after n = 3, and the values are exact all the same:

    all places ─ n=2 ─▶ those repeated ─ n=3 ─▶ those repeated ─▶ … ─ n=10
"""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.hashing import set_size
from tokenmill_core.compiled.kernel import at, kernel
from tokenmill_corpus.words import Words

TOP_NGRAMS = (2, 3, 4)
DUPLICATE_NGRAMS = (5, 6, 7, 8, 9, 10)


def repeated_characters(words: Words) -> dict[int, NDArray[np.int64]]:
    """Characters of each document in repeated n-grams, by n.

    For n in `TOP_NGRAMS`: of the most frequent n-gram, of equally frequent ones the first, its characters times its
    count, white space between its tokens included; 0 where none occurs twice. For n in `DUPLICATE_NGRAMS`: the tokens'
    characters of all n-grams equal to an earlier one, found from left to right, none overlapping the one found before.
    """
    table = _repeated_characters(words)
    return dict(zip((*TOP_NGRAMS, *DUPLICATE_NGRAMS), table, strict=True))


SMALLEST, FIRST_DUPLICATE, LARGEST = TOP_NGRAMS[0], DUPLICATE_NGRAMS[0], DUPLICATE_NGRAMS[-1]


@numba.njit(cache=True)
def _repeated_characters(words: Words) -> NDArray[np.int64]:
    first, last = words.first, words.last
    out = np.zeros((LARGEST - SMALLEST + 1, len(first)), np.int64)
    most = 0
    for d in range(len(first)):
        most = max(most, last[d] - first[d])
    places, slots, grams = np.empty(most, np.int64), np.empty(most, np.uint64), np.empty(most, np.uint64)
    keys, counts = np.empty(set_size(most), np.uint64), np.empty(set_size(most), np.int32)
    marks = np.empty(4 * set_size(most), np.uint8)
    for d in range(len(first)):
        num_places = last[d] - first[d]
        for k in range(num_places):
            places[k], grams[k] = first[d] + k, words.hashes[first[d] + k]
        for n in range(SMALLEST, LARGEST + 1):
            num_places = _extend(places, grams, num_places, n, last[d], words.hashes)
            if n < FIRST_DUPLICATE:
                num_places = _drop_unique(places, grams, num_places, marks)
            _count(grams, num_places, keys, counts, slots)
            if n < FIRST_DUPLICATE:
                out[n - SMALLEST, d] = _top(places, slots, num_places, counts, n, words)
            num_places = _narrow(places, grams, slots, num_places, counts)
            if num_places == 0:
                break
            if n >= FIRST_DUPLICATE:
                out[n - SMALLEST, d] = _duplicates(places, slots, num_places, counts, n, words)
    return out


@kernel
def _extend(
    places: NDArray[np.int64], grams: NDArray[np.uint64], num_places: int, n: int, end: int, hashes: NDArray[np.uint64]
) -> int:
    """From (n-1)-grams to n-grams; places too near the document's end fall away."""
    while num_places > 0 and places[num_places - 1] + n > end:
        num_places -= 1
    for k in range(num_places):
        h = (grams[k] ^ (grams[k] >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15) + at(hashes, places[k] + n - 1)
        grams[k] = (h ^ (h >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) | np.uint64(1)
    return num_places


@kernel
def _drop_unique(
    places: NDArray[np.int64], grams: NDArray[np.uint64], num_places: int, marks: NDArray[np.uint8]
) -> int:
    """Drop most places whose n-gram occurs once, and none other: quick, as no branch depends on the text."""
    size = 4 * set_size(num_places)
    marks[:size] = 0
    mask = np.uint64(size - 1)
    for k in range(num_places):
        slot = (grams[k] >> np.uint64(20)) & mask
        marks[slot] = 1 + (marks[slot] > 0)
    kept = 0
    for k in range(num_places):
        places[kept], grams[kept] = places[k], grams[k]
        kept += marks[(grams[k] >> np.uint64(20)) & mask] > 1
    return kept


@kernel
def _count(
    grams: NDArray[np.uint64],
    num_places: int,
    keys: NDArray[np.uint64],
    counts: NDArray[np.int32],
    slots: NDArray[np.uint64],
) -> None:
    """Fill `counts`, and `slots` with where in it the count of each place's n-gram stands."""
    size = set_size(num_places)
    keys[:size] = 0
    mask = np.uint64(size - 1)
    for k in range(num_places):
        slot = (grams[k] >> np.uint64(20)) & mask
        while keys[slot] != grams[k]:
            if keys[slot] == 0:
                keys[slot], counts[slot] = grams[k], 0
                break
            slot = (slot + np.uint64(1)) & mask
        counts[slot] += 1
        slots[k] = slot


@kernel
def _top(
    places: NDArray[np.int64],
    slots: NDArray[np.uint64],
    num_places: int,
    counts: NDArray[np.int32],
    n: int,
    words: Words,
) -> int:
    """Characters times count of the most frequent n-gram."""
    most, characters = 1, 0
    for k in range(num_places):
        if counts[slots[k]] > most:
            most = counts[slots[k]]
            characters = words.ends[places[k] + n - 1] - words.starts[places[k]]
    return characters * most


@kernel
def _narrow(
    places: NDArray[np.int64],
    grams: NDArray[np.uint64],
    slots: NDArray[np.uint64],
    num_places: int,
    counts: NDArray[np.int32],
) -> int:
    """Keep the places whose n-gram occurs more than once."""
    kept = 0
    for k in range(num_places):
        places[kept], grams[kept], slots[kept] = places[k], grams[k], slots[k]
        kept += counts[slots[k]] > 1
    return kept


@kernel
def _duplicates(
    places: NDArray[np.int64],
    slots: NDArray[np.uint64],
    num_places: int,
    counts: NDArray[np.int32],
    n: int,
    words: Words,
) -> int:
    """Characters of the n-grams met before, passing over what lies inside the last one found. Uses up `counts`."""
    characters, free = 0, 0
    for k in range(num_places):
        place = places[k]
        if place < free:
            continue
        if counts[slots[k]] < 0:
            free = place + n
            for token in range(place, free):
                characters += words.ends[token] - words.starts[token]
        counts[slots[k]] = -1
    return characters
