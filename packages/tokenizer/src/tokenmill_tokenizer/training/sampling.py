"""A sample of documents that depends on nothing but their texts: neither on their order nor on how files are cut.

    text ─▶ hash with the seed ─▶ one of 65,536 buckets ─▶ taken if the bucket is

Equal texts are taken or left together. From the first bucket on, each is taken that still fits into the budget.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.hashing import hash_bytes, mix
from tokenmill_core.compiled.text_buffers import TextBuffers

NUM_BUCKETS = 1 << 16


def buckets_of(text: TextBuffers, seed: int) -> NDArray[np.int64]:
    """The bucket of each document, from 0 to `NUM_BUCKETS` - 1."""
    return _buckets_of(text.data, text.offsets, np.uint64(seed))


def choose_buckets(bytes_in_bucket: NDArray[np.int64], budget: int) -> NDArray[np.bool_]:
    """Which buckets are taken: in order, each that fits into what the ones before left of `budget` bytes."""
    taken = np.zeros(len(bytes_in_bucket), np.bool_)
    _choose(bytes_in_bucket, budget, taken)
    return taken


@numba.njit(cache=True)
def _choose(bytes_in_bucket: NDArray[np.int64], budget: int, taken: NDArray[np.bool_]) -> None:
    for bucket in range(len(taken)):
        if bytes_in_bucket[bucket] <= budget:
            taken[bucket] = True
            budget -= bytes_in_bucket[bucket]


@numba.njit(cache=True, nogil=True)
def _buckets_of(data: NDArray[np.uint8], offsets: NDArray[np.int64], seed: np.uint64) -> NDArray[np.int64]:
    buckets = np.empty(len(offsets) - 1, np.int64)
    salt = mix(seed)
    for d in range(len(buckets)):
        buckets[d] = np.int64(mix(hash_bytes(data, offsets[d], offsets[d + 1]) ^ salt) >> np.uint64(48))
    return buckets
