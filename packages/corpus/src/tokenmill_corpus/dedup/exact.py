"""What makes documents copies of one another: a 128-bit digest of their bytes, or of their words.

128 bits: among 10^12 documents an accidental collision has a chance below 2·10^-15.
"""

import hashlib
import itertools

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.hashing import mix
from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_corpus.dedup.normal_form import hash_words, normal_form_table

DIGEST_BYTES = 16


def text_digests(text: TextBuffers) -> NDArray[np.uint64]:
    """A BLAKE2b digest of each document's bytes, (documents, 2)."""
    data, bounds = text.data.data, text.offsets.tolist()
    joined = b"".join(
        hashlib.blake2b(data[start:end], digest_size=DIGEST_BYTES).digest() for start, end in itertools.pairwise(bounds)
    )
    return np.frombuffer(joined, "<u8").reshape(-1, 2)


def normalised_digests(text: TextBuffers) -> NDArray[np.uint64]:
    """A digest of each document's words in lower case, (documents, 2); of its bytes where it has no word."""
    digests = np.empty((len(text), 2), np.uint64)
    words = np.empty(text.num_bytes.max(initial=0), np.uint64)
    _fold_words(text.data, text.offsets, normal_form_table(), words, digests)
    return digests


@numba.njit(cache=True)
def _fold_words(
    text: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    table: NDArray[np.uint32],
    words: NDArray[np.uint64],
    digests: NDArray[np.uint64],
) -> None:
    for i in range(len(digests)):
        first, last = offsets[i], offsets[i + 1]
        count = hash_words(text, first, last, table, words)
        # An even start for words and an odd one for bytes: no text is a copy of a number of bytes.
        one, two = np.uint64(2), np.uint64(4)
        if count == 0:
            count = last - first
            one, two = np.uint64(3), np.uint64(5)
            for j in range(count):
                words[j] = mix(np.uint64(text[first + j]))
        for j in range(count):
            one = mix(one ^ words[j])
            two = (two ^ words[j]) * np.uint64(0x9FB21C651E98DF25)
            two ^= two >> np.uint64(32)
        digests[i, 0], digests[i, 1] = mix(one), mix(two)
