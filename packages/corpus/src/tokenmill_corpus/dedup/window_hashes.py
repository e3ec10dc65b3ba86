"""Hashes of every run of n bytes of a text, each from the one before it."""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.hashing import mix

_FACTOR = np.uint64(0x9FB21C651E98DF25)
_PRIME = np.uint64((1 << 61) - 1)
_BASES = (np.uint64(0x0A3B1F6C5D9E2473), np.uint64(0x16C94E8B70D3A52F))
_LOW_BITS, _HALF = np.uint64((1 << 31) - 1), np.uint64(31)
_LOWER_BITS, _LESS = np.uint64((1 << 30) - 1), np.uint64(30)


@numba.njit(cache=True)
def hash_runs(data: NDArray[np.uint8], first: int, count: int, width: int, hashes: NDArray[np.uint64]) -> None:
    """Write a hash of each of the `count` runs of `width` bytes from byte `first` on. Texts can be made to collide."""
    power, run = np.uint64(1), np.uint64(0)
    for i in range(first, first + width - 1):
        run = run * _FACTOR + np.uint64(data[i])
        power *= _FACTOR
    for i in range(count):
        run = run * _FACTOR + np.uint64(data[first + i + width - 1])
        hashes[i] = mix(run)
        run -= np.uint64(data[first + i]) * power


@numba.njit(cache=True)
def leaving_bytes(width: int) -> NDArray[np.uint64]:
    """For `fingerprint_runs`: what each byte that a run of `width` bytes loses takes from its two values."""
    terms = np.empty((256, 2), np.uint64)
    for which in range(2):
        power = np.uint64(1)
        for _ in range(width):
            power = _next(power, _BASES[which], np.uint64(0))
        for byte in range(256):
            terms[byte, which] = _PRIME - _next(power, np.uint64(byte + 1), np.uint64(0))
    return terms


@numba.njit(cache=True)
def fingerprint_runs(
    data: NDArray[np.uint8],
    first: int,
    count: int,
    width: int,
    leaving: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    checks: NDArray[np.uint64],
) -> None:
    """Write the fingerprint of each of the `count` runs of `width` bytes from byte `first` on.

    It is the values of the run as two polynomials modulo 2^61 − 1: two different runs have the same fingerprint with a
    chance of at most (width / 2^61)^2, over the choice of bases. The keys are mixed besides.
    """
    key, check = np.uint64(0), np.uint64(0)
    for i in range(first, first + width):
        entering = np.uint64(data[i]) + np.uint64(1)
        key, check = _next(key, _BASES[0], entering), _next(check, _BASES[1], entering)
    keys[0], checks[0] = mix(key), check
    for i in range(1, count):
        entering, left = np.uint64(data[first + i + width - 1]) + np.uint64(1), data[first + i - 1]
        key = _next(key, _BASES[0], entering + leaving[left, 0])
        check = _next(check, _BASES[1], entering + leaving[left, 1])
        keys[i], checks[i] = mix(key), check


@numba.njit(cache=True)
def _next(a: np.uint64, b: np.uint64, c: np.uint64) -> np.uint64:
    """a·b + c modulo 2^61 − 1, for a and b below it and c not above 2^61 + 255."""
    a_high, a_low, b_high, b_low = a >> _HALF, a & _LOW_BITS, b >> _HALF, b & _LOW_BITS
    middle = a_low * b_high + a_high * b_low
    # As 2^61 is 1 here, a_high·b_high·2^62 is twice the product, and of middle·2^31 the high bits come round. The sum
    # of all is below 2^64.
    total = ((a_high * b_high) << np.uint64(1)) + (middle >> _LESS) + ((middle & _LOWER_BITS) << _HALF)
    total += a_low * b_low + c
    total = (total & _PRIME) + (total >> np.uint64(61))
    return total - _PRIME if total >= _PRIME else total
