"""Reading a fastText model file, and asking it about documents.

    file ─▶ settings, dictionary, input matrix (rows of words, then of hashed n-grams), output matrix ─▶ `Weights`
    document ─▶ words and n-grams ─▶ mean of their rows ─▶ output matrix ─▶ a probability a label

The same arithmetic as the library's own `predict`, without its restriction to one line of text and without a copy of
the texts. The format and the model are described in Joulin et al. 2016 and 2017, and in the library's sources.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill_core import storage
from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_core.errors import InputError
from tokenmill_corpus.fasttext.kernels import Loss, Weights, index_words, predict

LABEL_PREFIX = "__label__"

_MAGIC, _VERSION, _SUPERVISED = 793712314, 12, 3
_CENTROIDS = 256
"""Of a product quantiser: a code is a byte."""


@dataclass(frozen=True)
class FastText:
    """A supervised model."""

    labels: tuple[str, ...]
    """Without the prefix `__label__`."""
    weights: Weights

    def predict(self, text: TextBuffers) -> NDArray[np.float32]:
        """(documents, labels): the probability of each label; zeros where a document has nothing the model knows.

        White space of any kind separates words, a line break too. Under one-versus-all loss a row need not sum to 1.
        """
        return predict(text.data, np.ascontiguousarray(text.offsets), self.weights)


@lru_cache(maxsize=4)
def load_fasttext(path: str) -> FastText:
    """The supervised model at `path`; `InputError` where there is none. Quantised matrices are held unpacked."""
    if not storage.exists(path):
        raise InputError(f"{path}: no such fastText model; give the path of a .bin or .ftz file")
    try:
        return _read(_Reader(storage.read_bytes(path)))
    except (struct.error, ValueError, IndexError, UnicodeDecodeError, OverflowError) as error:
        raise InputError(f"{path}: not a readable supervised fastText model: {error}") from error


class _Reader:
    """Little-endian values off a buffer, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def values(self, layout: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{layout}", self._data, self._at)
        self._at += struct.calcsize(f"<{layout}")
        return found

    def array(self, dtype: str, count: int) -> NDArray[Any]:
        found = np.frombuffer(self._data, dtype, count, self._at)
        self._at += found.nbytes
        return found

    def until_zero(self) -> bytes:
        end = self._data.index(b"\0", self._at)
        found = self._data[self._at : end]
        self._at = end + 1
        return found


def _read(reader: _Reader) -> FastText:
    magic, version = reader.values("ii")
    if magic != _MAGIC or version != _VERSION:
        raise ValueError(f"it begins with {magic} and version {version}, not {_MAGIC} and {_VERSION}")
    dim, _, _, _, _, word_ngrams, loss, kind, bucket, minn, maxn, _, _ = reader.values("12id")
    if kind != _SUPERVISED:
        raise ValueError("it holds word vectors, not a classifier")
    words, labels, counts, pruned = _read_dictionary(reader, bucket)
    inputs = _read_input(reader)
    quantised_output = reader.values("?")[0]
    outputs = _read_quantised(reader) if inputs.quantised and quantised_output else _read_dense(reader)
    if inputs.rows.shape[1] != dim or outputs.shape != (len(labels), dim):
        raise ValueError(f"its matrices are not of {dim} dimensions and {len(labels)} labels")
    left, right = _huffman(counts) if loss == Loss.HIERARCHICAL_SOFTMAX else (np.empty(0, np.int64),) * 2
    data, offsets, table = _word_index(words)
    weights = Weights(
        data, offsets, table, pruned, inputs.rows, outputs, left, right, loss, bucket, minn, maxn, word_ngrams
    )
    return FastText(labels=tuple(label.decode().removeprefix(LABEL_PREFIX) for label in labels), weights=weights)


def _read_dictionary(
    reader: _Reader, bucket: int
) -> tuple[list[bytes], list[bytes], NDArray[np.int64], NDArray[np.int32]]:
    """Words, labels, how often each label occurred in training, and which rows n-grams have (empty: all of them)."""
    size, num_words, num_labels, _, num_pruned = reader.values("iiiqq")
    entries = [(reader.until_zero(), *reader.values("qb")) for _ in range(size)]
    words, labels = entries[:num_words], entries[num_words:]
    if len(labels) != num_labels:
        raise ValueError(f"{size} entries are not {num_words} words and {num_labels} labels")
    rows = np.empty(0, np.int32)
    if num_pruned >= 0:
        pairs = reader.array("<i4", 2 * num_pruned).reshape(-1, 2)
        rows = np.full(bucket, -1, np.int32)
        rows[pairs[:, 0]] = pairs[:, 1]
    counts = np.array([count for _, count, _ in labels], np.int64)
    return [word for word, _, _ in words], [label for label, _, _ in labels], counts, rows


@dataclass(frozen=True)
class _Input:
    rows: NDArray[np.float32]
    quantised: bool


def _read_input(reader: _Reader) -> _Input:
    quantised = reader.values("?")[0]
    return _Input(_read_quantised(reader) if quantised else _read_dense(reader), quantised)


def _read_dense(reader: _Reader) -> NDArray[np.float32]:
    rows, columns = reader.values("qq")
    return reader.array("<f4", rows * columns).reshape(rows, columns)


def _read_quantised(reader: _Reader) -> NDArray[np.float32]:
    """A product-quantised matrix, unpacked: each code stands for a stretch of a row, scaled by the row's norm."""
    has_norms, rows, _, num_codes = reader.values("?qqi")
    codes = reader.array("u1", num_codes)
    unpacked = _read_quantiser(reader, codes, rows)
    if has_norms:
        norm_codes = reader.array("u1", rows)
        unpacked = unpacked * _read_quantiser(reader, norm_codes, rows)
    return unpacked


def _read_quantiser(reader: _Reader, codes: NDArray[np.uint8], num_rows: int) -> NDArray[np.float32]:
    dim, num_parts, part_dim, last_dim = reader.values("iiii")
    centroids = reader.array("<f4", dim * _CENTROIDS)
    codes = codes.reshape(num_rows, num_parts)
    parts = []
    for part in range(num_parts):
        width = last_dim if part == num_parts - 1 else part_dim
        first = part * _CENTROIDS * part_dim
        parts.append(centroids[first : first + _CENTROIDS * width].reshape(_CENTROIDS, width)[codes[:, part]])
    return np.concatenate(parts, axis=1)


def _word_index(words: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32]]:
    data = np.frombuffer(b"".join(words), np.uint8)
    offsets = np.cumsum([0, *map(len, words)], dtype=np.int64)
    return data, offsets, index_words(data, offsets)


def _huffman(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Left and right child of each inner node of the tree over labels; node i ≥ labels is row i - labels.

    Labels come most frequent first, so both queues of the classical construction are sorted without sorting.
    """
    num = len(counts)
    weight = np.concatenate([counts, np.full(num, 10**15, np.int64)])
    children = np.zeros((2, max(num - 1, 0)), np.int64)
    leaf, node = num - 1, num
    for new in range(num, 2 * num - 1):
        for side in range(2):
            if leaf >= 0 and weight[leaf] < weight[node]:
                children[side, new - num], leaf = leaf, leaf - 1
            else:
                children[side, new - num], node = node, node + 1
        weight[new] = weight[children[:, new - num]].sum()
    return children[0], children[1]
