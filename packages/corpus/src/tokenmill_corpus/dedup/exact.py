"""Exact duplicates: documents with the same bytes of text. The first one, in the order of the data, stays."""

import hashlib
import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenmill_corpus.text_buffers import TextBuffers

DIGEST_BYTES = 16
"""128 bits: among 10^12 documents an accidental collision has a chance below 2·10^-15."""
DIGEST_DTYPE = np.dtype((np.void, DIGEST_BYTES))
Digests = NDArray[np.void]


def text_digests(text: TextBuffers) -> Digests:
    """A 128-bit BLAKE2b digest of each document's bytes, as an array of 16-byte items."""
    data, bounds = text.data.data, text.offsets.tolist()
    joined = b"".join(
        hashlib.blake2b(data[start:end], digest_size=DIGEST_BYTES).digest() for start, end in itertools.pairwise(bounds)
    )
    return np.frombuffer(joined, dtype=DIGEST_DTYPE)


def first_occurrences(parts: Sequence[Digests]) -> list[NDArray[np.bool_]]:
    """For each part, which of its documents no earlier document, of this part or one before, equals."""
    lengths = [len(part) for part in parts]
    if not sum(lengths):
        return [np.ones(n, np.bool_) for n in lengths]
    # Two big-endian integers sort as the bytes do, and numpy sorts integers far faster than raw bytes.
    halves = np.concatenate(parts).view(">u8").reshape(-1, 2).astype(np.uint64)
    order = np.lexsort((halves[:, 1], halves[:, 0]))
    ordered = halves[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = np.zeros(len(order), np.bool_)
    # lexsort is stable, so the first of a run of equals is the earliest document.
    first[order[new]] = True
    return list(np.split(first, np.cumsum(lengths)[:-1]))
