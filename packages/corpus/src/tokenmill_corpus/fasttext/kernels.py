"""fastText's arithmetic over UTF-8 buffers, compiled: hashing of words and n-grams, and the outputs of its losses."""

import math
from enum import IntEnum
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray


class Loss(IntEnum):
    """The loss that a model was trained with, as the file numbers them."""

    HIERARCHICAL_SOFTMAX = 1
    NEGATIVE_SAMPLING = 2
    SOFTMAX = 3
    ONE_VERSUS_ALL = 4


class Weights(NamedTuple):
    """A model as the kernels take it."""

    words: NDArray[np.uint8]
    """Word i is `words[word_offsets[i]:word_offsets[i + 1]]`."""
    word_offsets: NDArray[np.int64]
    word_table: NDArray[np.int32]
    """Open addressing: a word's hash ─▶ its number, or -1."""
    ngram_rows: NDArray[np.int32]
    """Bucket of an n-gram ─▶ its row after the words, or -1 where it was pruned; empty: the bucket is the row."""
    inputs: NDArray[np.float32]
    outputs: NDArray[np.float32]
    left: NDArray[np.int64]
    """Of hierarchical softmax: left child of each inner node."""
    right: NDArray[np.int64]
    loss: int
    bucket: int
    minn: int
    maxn: int
    word_ngrams: int


_EOS = np.frombuffer(b"</s>", np.uint8)
_PREFIX = np.frombuffer(b"__label__", np.uint8)


@numba.njit(cache=True)
def index_words(words: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """The `word_table` of these words."""
    size = 8
    while size < 2 * len(offsets):
        size *= 2
    table = np.full(size, -1, np.int32)
    for i in range(len(offsets) - 1):
        slot = np.int64(_hash(words[offsets[i] : offsets[i + 1]])) & (size - 1)
        while table[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        table[slot] = i
    return table


@numba.njit(cache=True)
def predict(data: NDArray[np.uint8], offsets: NDArray[np.int64], model: Weights) -> NDArray[np.float32]:
    """(documents, labels) of probabilities."""
    num_documents = len(offsets) - 1
    out = np.zeros((num_documents, len(model.outputs)), np.float32)
    # The model is taken apart here: handed on whole, each call would count references to all of its arrays.
    words, word_offsets, table, ngram_rows = model.words, model.word_offsets, model.word_table, model.ngram_rows
    inputs, bucket, sizes = model.inputs, np.uint32(model.bucket), (len(word_offsets) - 1, model.minn, model.maxn)
    end = _find(_EOS, _hash(_EOS), words, word_offsets, table)
    longest = 0
    for d in range(num_documents):
        longest = max(longest, offsets[d + 1] - offsets[d])
    bounded, hashes = np.empty(longest + 2, np.uint8), np.empty(longest // 2 + 2, np.int32)
    for d in range(num_documents):
        text = data[offsets[d] : offsets[d + 1]]
        hidden, rows, num_words, i = np.zeros(inputs.shape[1], np.float32), 0, 0, 0
        while i < len(text):
            start = i
            while i < len(text) and not _is_separator(text[i]):
                i += 1
            if start < i:
                h = _hash(text[start:i])
                word = _find(text[start:i], h, words, word_offsets, table)
                if word >= 0:
                    rows += _add_row(inputs, word, hidden)
                elif _starts_with(text[start:i], _PREFIX):
                    continue  # a label within the text is none of its words
                if model.maxn > 0:
                    rows += _add_ngrams(text[start:i], bounded, bucket, sizes, ngram_rows, inputs, hidden)
                hashes[num_words] = np.int32(np.int64(h))
                num_words += 1
            i += 1
        if rows and end >= 0:
            rows += _add_row(inputs, end, hidden)
        hashes[num_words] = np.int32(np.int64(_hash(_EOS)))
        if rows and model.word_ngrams > 1:
            sequence = hashes[: num_words + 1]
            rows += _add_word_ngrams(sequence, model.word_ngrams, sizes[0], bucket, ngram_rows, inputs, hidden)
        if rows:
            for k in range(len(hidden)):
                hidden[k] /= np.float32(rows)
            _label_probabilities(hidden, model, out[d])
    return out


@numba.njit(cache=True)
def _add_ngrams(
    word: NDArray[np.uint8],
    bounded: NDArray[np.uint8],
    bucket: np.uint32,
    sizes: tuple[int, int, int],
    ngram_rows: NDArray[np.int32],
    inputs: NDArray[np.float32],
    hidden: NDArray[np.float32],
) -> int:
    """Add the rows of the n-grams of a word's characters, `<` and `>` about it; gives their number."""
    n, rows, (num_words, minn, maxn) = len(word) + 2, 0, sizes
    bounded[0], bounded[n - 1] = 60, 62
    for i in range(len(word)):
        bounded[i + 1] = word[i]
    for i in range(n):
        if (bounded[i] & 0xC0) == 0x80:
            continue
        h, j, length = _FNV_START, i, 1
        while j < n and length <= maxn:
            h = _fnv(h, bounded[j])
            j += 1
            while j < n and (bounded[j] & 0xC0) == 0x80:
                h = _fnv(h, bounded[j])
                j += 1
            if length >= minn and not (length == 1 and (i == 0 or j == n)):
                row = np.int64(np.uint32(h) % bucket)
                if len(ngram_rows):
                    row = np.int64(ngram_rows[row])
                if row >= 0:
                    rows += _add_row(inputs, num_words + row, hidden)
            length += 1
    return rows


@numba.njit(cache=True)
def _add_word_ngrams(
    hashes: NDArray[np.int32],
    longest: int,
    num_words: int,
    bucket: np.uint32,
    ngram_rows: NDArray[np.int32],
    inputs: NDArray[np.float32],
    hidden: NDArray[np.float32],
) -> int:
    """Add the rows of sequences of words; gives their number."""
    rows = 0
    for i in range(len(hashes)):
        h = np.uint64(np.int64(hashes[i]))
        for j in range(i + 1, min(len(hashes), i + longest)):
            h = h * np.uint64(116049371) + np.uint64(np.int64(hashes[j]))
            row = np.int64(h % np.uint64(bucket))
            if len(ngram_rows):
                row = np.int64(ngram_rows[row])
            if row >= 0:
                rows += _add_row(inputs, num_words + row, hidden)
    return rows


@numba.njit(cache=True)
def _add_row(inputs: NDArray[np.float32], row: int | np.int64, hidden: NDArray[np.float32]) -> int:
    for k in range(len(hidden)):
        hidden[k] += inputs[row, k]
    return 1


@numba.njit(cache=True)
def _label_probabilities(hidden: NDArray[np.float32], model: Weights, out: NDArray[np.float32]) -> None:
    num = len(out)
    if model.loss == Loss.HIERARCHICAL_SOFTMAX:
        logs = np.zeros(max(2 * num - 1, 1))
        for node in range(2 * num - 2, num - 1, -1):
            p = _sigmoid(float(_dot(model.outputs, node - num, hidden)))
            logs[model.left[node - num]] = logs[node] + np.log(1 - p + 1e-5)
            logs[model.right[node - num]] = logs[node] + np.log(p + 1e-5)
        for i in range(num):
            out[i] = min(np.exp(logs[i]), 1.0)
        return
    largest, total = np.float32(-np.inf), np.float32(0)
    for i in range(num):
        out[i] = _dot(model.outputs, i, hidden)
        largest = max(largest, out[i])
    for i in range(num):
        out[i] = np.exp(out[i] - largest) if model.loss == Loss.SOFTMAX else _sigmoid(float(out[i]))
        total += out[i]
    if model.loss == Loss.SOFTMAX:
        for i in range(num):
            out[i] /= total


@numba.njit(cache=True)
def _dot(matrix: NDArray[np.float32], row: int, vector: NDArray[np.float32]) -> np.float32:
    total = np.float32(0)
    for k in range(len(vector)):
        total += matrix[row, k] * vector[k]
    return total


@numba.njit(cache=True)
def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(x, -30.0), 30.0)))


@numba.njit(cache=True)
def _find(
    word: NDArray[np.uint8],
    h: np.uint64,
    words: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    table: NDArray[np.int32],
) -> int:
    """The number of a word with the hash `h`, or -1."""
    slot = np.int64(h) & (len(table) - 1)
    while table[slot] >= 0:
        found = int(table[slot])
        first, last = offsets[found], offsets[found + 1]
        if last - first == len(word) and _starts_with(words[first:last], word):
            return found
        slot = (slot + 1) & (len(table) - 1)
    return -1


@numba.njit(cache=True)
def _starts_with(text: NDArray[np.uint8], prefix: NDArray[np.uint8]) -> bool:
    if len(text) < len(prefix):
        return False
    same = True
    for i in range(len(prefix)):
        same &= text[i] == prefix[i]
    return same


@numba.njit(cache=True)
def _is_separator(byte: int) -> bool:
    return byte == 32 or 9 <= byte <= 13 or byte == 0


_FNV_START = np.uint64(2166136261)


@numba.njit(cache=True)
def _fnv(h: np.uint64, byte: int) -> np.uint64:
    # The library hashes signed characters: a byte above 127 reaches the hash with its upper 24 bits set.
    signed = np.uint64(byte) | (np.uint64(0xFFFFFF00) if byte > 127 else np.uint64(0))
    return ((h ^ signed) * np.uint64(16777619)) & np.uint64(0xFFFFFFFF)


@numba.njit(cache=True)
def _hash(text: NDArray[np.uint8]) -> np.uint64:
    h = _FNV_START
    for i in range(len(text)):
        h = _fnv(h, text[i])
    return h
