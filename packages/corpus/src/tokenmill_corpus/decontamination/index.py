"""The n-grams of all benchmarks, for looking up those of documents.

    items ─▶ texts ─▶ words in their normal form ─▶ n-grams ─▶ sorted keys, and the items of each
                                                       └▶ filter of how they begin, which stops nearly all of a document

A text with fewer than n words is one n-gram of all its words, where these are enough to say something.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_corpus.decontamination.items import Benchmark, Item, read_items
from tokenmill_corpus.decontamination.ngrams import most_words, ngram_at, powers_of, sums_of_words
from tokenmill_corpus.dedup.keys import starts_of_runs
from tokenmill_corpus.dedup.normal_form import normal_form_table

_BITS_PER_KEY = 32


@dataclass(frozen=True)
class Index:
    """Items are numbered through all benchmarks."""

    keys: NDArray[np.uint64]
    """Distinct n-grams, sorted."""
    first_posting: NDArray[np.int64]
    """n-gram i belongs to the items `postings[first_posting[i]:first_posting[i + 1]]`."""
    postings: NDArray[np.int64]
    lengths: NDArray[np.int64]
    """How many words n-grams have: every number that occurs, ascending."""
    beginnings: NDArray[np.uint64]
    """Filter that lets the first `lengths[0]` words of every n-gram pass: `may_begin`."""
    num_ngrams: NDArray[np.int64]
    """Distinct n-grams of each item; none where all its texts are too short, or its n-grams common."""
    rows: NDArray[np.int64]
    """Line of each item in its benchmark's file."""
    bounds: NDArray[np.int64]
    """First item of each benchmark, and at the end the number of items."""
    num_common_ngrams: NDArray[np.int64]
    """For each benchmark, how many of its n-grams are left out because too many items have them."""


def build_index(benchmarks: Sequence[Benchmark], *, ngram: int, min_words: int, max_items: int) -> Index:
    """Index all items of `benchmarks`; the errors are those of `read_items`.

    Texts with fewer than `min_words` words are left out, and n-grams that more than `max_items` items have.
    """
    items = [list(read_items(benchmark)) for benchmark in benchmarks]
    together = [item for some in items for item in some]
    bounds = np.cumsum([0, *map(len, items)])
    keys, texts, lengths, beginnings = _ngrams_of(_buffers(together), ngram, min_words)
    item_of_text = np.repeat(np.arange(len(together)), [len(item.texts) for item in together])
    keys, owners = _distinct(keys, item_of_text[texts])
    starts = starts_of_runs(keys)
    counts = np.diff(np.append(np.flatnonzero(starts), len(keys)))
    common = np.repeat(counts > max_items, counts)
    _, benchmark_of_common = _distinct(keys[common], np.searchsorted(bounds, owners[common], side="right") - 1)
    return Index(
        keys=keys[starts & ~common],
        first_posting=np.cumsum([0, *counts[counts <= max_items]]),
        postings=owners[~common],
        lengths=lengths,
        beginnings=_filter_of(beginnings),
        num_ngrams=np.bincount(owners[~common], minlength=len(together)),
        rows=np.array([item.row for item in together], np.int64),
        bounds=bounds,
        num_common_ngrams=np.bincount(benchmark_of_common, minlength=len(benchmarks)),
    )


def _distinct(keys: NDArray[np.uint64], owners: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Distinct pairs, sorted."""
    order = np.lexsort((owners, keys))
    keys, owners = keys[order], owners[order]
    new = starts_of_runs(keys, owners)
    return keys[new], owners[new]


def _buffers(items: Sequence[Item]) -> TextBuffers:
    encoded = [text.encode() for item in items for text in item.texts]
    return TextBuffers(data=np.frombuffer(b"".join(encoded), np.uint8), offsets=np.cumsum([0, *map(len, encoded)]))


def _ngrams_of(
    text: TextBuffers, ngram: int, min_words: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
    """(keys of all n-grams, the text of each, lengths that occur, hashes of their beginnings)."""
    num_words = _count_words(text.data, text.offsets, normal_form_table())
    length_of_text = np.where(num_words < min_words, 0, np.minimum(num_words, ngram))
    lengths = np.unique(length_of_text[length_of_text > 0])
    if not len(lengths):
        return np.empty(0, np.uint64), np.empty(0, np.int64), lengths, np.empty(0, np.uint64)
    counts = np.where(length_of_text > 0, num_words - length_of_text + 1, 0)
    keys, beginnings = np.empty((2, counts.sum()), np.uint64)
    powers = powers_of(np.arange(ngram + 1))
    _hash_ngrams(text.data, text.offsets, normal_form_table(), length_of_text, powers, lengths[0], keys, beginnings)
    return keys, np.repeat(np.arange(len(text)), counts), lengths, beginnings


@numba.njit(cache=True)
def _count_words(data: NDArray[np.uint8], offsets: NDArray[np.int64], table: NDArray[np.uint32]) -> NDArray[np.int64]:
    counts = np.zeros(len(offsets) - 1, np.int64)
    room = most_words(np.diff(offsets).max()) if len(counts) else 0
    words, sums = np.empty(room, np.uint64), np.empty(room, np.uint64)
    for t in range(len(counts)):
        counts[t] = sums_of_words(data, offsets[t], offsets[t + 1], table, words, sums)
    return counts


@numba.njit(cache=True)
def _hash_ngrams(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    table: NDArray[np.uint32],
    length_of_text: NDArray[np.int64],
    powers: NDArray[np.uint64],
    shortest: int,
    keys: NDArray[np.uint64],
    beginnings: NDArray[np.uint64],
) -> None:
    room = most_words(np.diff(offsets).max())
    words, sums = np.empty(room, np.uint64), np.empty(room, np.uint64)
    n = 0
    for t in range(len(length_of_text)):
        length = length_of_text[t]
        if length == 0:
            continue
        count = sums_of_words(data, offsets[t], offsets[t + 1], table, words, sums)
        for i in range(count - length + 1):
            keys[n] = ngram_at(sums, i, length, powers[length])
            beginnings[n] = ngram_at(sums, i, shortest, powers[shortest])
            n += 1


@numba.njit(cache=True)
def _filter_of(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A Bloom filter that keeps the bits of a hash in one 64-bit word: one look into memory, wrong 1 time in 200."""
    size = 1
    while size * 64 < _BITS_PER_KEY * len(hashes):
        size *= 2
    words = np.zeros(size, np.uint64)
    for key in hashes:
        words[key & np.uint64(size - 1)] |= _bits_of(key)
    return words


@numba.njit(cache=True)
def may_begin(beginnings: NDArray[np.uint64], key: np.uint64) -> bool:
    """Whether an n-gram may begin with the words whose hash is `key`."""
    bits = _bits_of(key)
    return bool(beginnings[key & np.uint64(len(beginnings) - 1)] & bits == bits)


@numba.njit(cache=True)
def _bits_of(key: np.uint64) -> np.uint64:
    one, mask = np.uint64(1), np.uint64(63)
    return (one << (key >> np.uint64(58))) | (one << ((key >> np.uint64(52)) & mask))
