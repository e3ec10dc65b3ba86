"""MinHash: documents of similar sets of shingles share the key of a band.

    shingles ─▶ the least a·x + b of all, for each of bands × rows pairs (a, b) ─▶ one 64-bit key a band of rows

Two documents of Jaccard similarity s share a key with probability 1 − (1 − s^rows)^bands (Broder 1997; Leskovec,
Rajaraman, Ullman, Mining of Massive Datasets, ch. 3). Of each minimum the lowest `bits` bits count (Li, König 2010).
"""

import functools

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.hashing import mix
from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_corpus.dedup.normal_form import normal_form_table
from tokenmill_corpus.dedup.settings import MinHash
from tokenmill_corpus.dedup.shingles import Unit, hash_shingles

Permutations = NDArray[np.unsignedinteger]
"""(2, bands × rows): odd factors a and addends b, of 32 or 64 bits."""


@functools.cache
def permutations(settings: MinHash) -> Permutations:
    """The pairs (a, b) that `settings` stand for."""
    count = settings.num_bands * settings.rows_per_band
    with np.errstate(over="ignore"):
        drawn = np.array([mix(mix(np.uint64(settings.seed)) + np.uint64(i)) for i in range(2 * count)], np.uint64)
    drawn[:count] |= np.uint64(1)
    return drawn.reshape(2, count).astype(np.uint64 if settings.bits > 32 else np.uint32)


def band_keys(settings: MinHash, text: TextBuffers) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """The keys of each document, (documents, bands), and which documents have any."""
    shape = (len(text), settings.num_bands)
    return _band_keys(
        text.data,
        text.offsets,
        normal_form_table(),
        settings.unit is Unit.CHARACTER,
        settings.ngram,
        permutations(settings),
        np.uint64((1 << settings.bits) - 1),
        np.empty(text.num_bytes.max(initial=0), np.uint64),
        np.empty(shape, np.uint64),
        np.ones(len(text), np.bool_),
    )


@numba.njit(cache=True)
def _band_keys(
    text: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    table: NDArray[np.uint32],
    by_character: bool,
    ngram: int,
    permutations: Permutations,
    mask: np.uint64,
    shingles: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    found: NDArray[np.bool_],
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    minima = np.empty(permutations.shape[1], permutations.dtype)
    for i in range(len(keys)):
        count = hash_shingles(text, offsets[i], offsets[i + 1], table, by_character, ngram, shingles)
        found[i] = count > 0
        find_minima(shingles[:count], permutations[0], permutations[1], minima)
        _hash_bands(minima, mask, keys[i])
    return keys, found


@numba.njit(cache=True)
def find_minima(
    shingles: NDArray[np.uint64], a: Permutations, b: Permutations, minima: NDArray[np.unsignedinteger]
) -> None:
    """Set `minima[j]` to the least a[j]·x + b[j] of all shingles, and to the greatest number where there are none."""
    number = minima.dtype.type
    minima.fill(~number(0))
    four = len(shingles) // 4 * 4
    # Four at a time: each minimum is loaded and stored a quarter as often.
    for i in range(0, four, 4):
        x0, x1, x2, x3 = shingles[i], shingles[i + 1], shingles[i + 2], shingles[i + 3]
        y0, y1, y2, y3 = number(x0), number(x1), number(x2), number(x3)
        for j in range(len(minima)):
            low = min(number(a[j] * y0 + b[j]), number(a[j] * y1 + b[j]))
            high = min(number(a[j] * y2 + b[j]), number(a[j] * y3 + b[j]))
            minima[j] = min(minima[j], min(low, high))
    for i in range(four, len(shingles)):
        y = number(shingles[i])
        for j in range(len(minima)):
            minima[j] = min(minima[j], number(a[j] * y + b[j]))


@numba.njit(cache=True)
def _hash_bands(minima: NDArray[np.unsignedinteger], mask: np.uint64, keys: NDArray[np.uint64]) -> None:
    rows = len(minima) // len(keys)
    for band in range(len(keys)):
        key = np.uint64(band + 1)
        for row in range(band * rows, (band + 1) * rows):
            key = mix(key ^ (np.uint64(minima[row]) & mask)) + key
        keys[band] = mix(key)
