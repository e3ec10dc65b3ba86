"""A keyed shuffle of 0 … size − 1 that is computed, not stored: any place of it in a few dozen nanoseconds.

A balanced Feistel network permutes the numbers of 2·h bits, the least that hold `size`; a result that is not below
`size` is put through again until one is ("cycle walking", fewer than four times on average since 4^h < 4·size). Each
round adds to one half a 64-bit mix of the other half and a round key.

Four rounds make a Feistel network a pseudorandom permutation when the halves are wide (Luby and Rackoff, 1988). Halves
here may be of one bit, so we take eight: the smallest sizes then reach every arrangement about equally often, which
`test_permutation.py` measures.
"""

import hashlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenmill_core.errors import InputError
from tokenmill_core.manifest import canonical_json
from tokenmill_shards.compiled import compiled

ROUNDS = 8
MAX_SIZE = 1 << 62


def epoch_key(digest: str, seed: int, source: str, epoch: int) -> bytes:
    """The key of one epoch of one source of the mixture with `digest`: 32 bytes."""
    return hashlib.blake2b(
        canonical_json([digest, seed, source, epoch]), digest_size=32, person=b"tokenmill-epoch"
    ).digest()


def round_keys(key: bytes) -> NDArray[np.uint64]:
    """The Feistel round keys that stand for `key`, shape (ROUNDS,)."""
    return np.frombuffer(hashlib.blake2b(key, digest_size=8 * ROUNDS, person=b"tokenmill-round").digest(), "<u8")


def permute(index: ArrayLike, size: int, key: bytes) -> NDArray[np.int64]:
    """Where the permutation of [0, size) with `key` sends each of `index`, of any shape."""
    places = np.asarray(index, np.int64)
    groups = np.zeros(places.size, np.int64)
    return permute_groups(places.ravel(), groups, np.array([size]), round_keys(key)[None, :]).reshape(places.shape)


def permute_groups(
    index: NDArray[np.int64], groups: NDArray[np.int64], sizes: NDArray[np.int64], keys: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Many permutations in one call: `index[i]` goes through that of `sizes[g]` and `keys[g]`, where g = `groups[i]`.

    Shapes (B,), (B,), (G,), (G, ROUNDS); the result is (B,). Raises InputError for an index outside its permutation.
    """
    return _walk(index, groups, sizes, keys, backwards=False)


def inverse_groups(
    index: NDArray[np.int64], groups: NDArray[np.int64], sizes: NDArray[np.int64], keys: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """The inverse of `permute_groups`: which index the same permutation sends to each of `index`.

    A Feistel network runs backwards as it runs forwards, with its keys reversed and its halves exchanged.
    """
    return _walk(index, groups, sizes, np.ascontiguousarray(keys[:, ::-1]), backwards=True)


def _walk(
    index: NDArray[np.int64],
    groups: NDArray[np.int64],
    sizes: NDArray[np.int64],
    keys: NDArray[np.uint64],
    *,
    backwards: bool,
) -> NDArray[np.int64]:
    bounds = sizes[groups]
    outside = np.flatnonzero((index < 0) | (index >= bounds))
    if outside.size or (sizes.size and sizes.max() > MAX_SIZE):
        place = outside[0] if outside.size else 0
        raise InputError(f"index {index[place]} is outside a permutation of {bounds[place]:,} (at most {MAX_SIZE:,})")
    # The fewest bits h with 4^h ≥ size, in whole numbers: a float logarithm errs near powers of two.
    half_bits = np.array([max(1, (int(size - 1).bit_length() + 1) // 2) for size in sizes.tolist()], np.uint64)
    result = np.empty(index.size, np.int64)
    _feistel(index.astype(np.uint64), groups, sizes.astype(np.uint64), half_bits, keys, backwards, result)
    return result


@compiled
def _feistel(
    index: NDArray[np.uint64],
    groups: NDArray[np.int64],
    sizes: NDArray[np.uint64],
    half_bits: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    backwards: bool,
    result: NDArray[np.int64],
) -> None:
    for i in range(index.size):
        group = groups[i]
        size, bits = sizes[group], half_bits[group]
        mask = (np.uint64(1) << bits) - np.uint64(1)
        value = index[i]
        while True:
            left, right = value >> bits, value & mask
            if backwards:
                left, right = right, left
            for number in range(keys.shape[1]):
                # The finalizer of SplitMix64: every bit of its input sways every bit of its output.
                mixed = (right ^ keys[group, number]) + np.uint64(0x9E3779B97F4A7C15)
                mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                left, right = right, left ^ ((mixed ^ (mixed >> np.uint64(31))) & mask)
            if backwards:
                left, right = right, left
            value = (left << bits) | right
            if value < size:
                break
        result[i] = np.int64(value)
