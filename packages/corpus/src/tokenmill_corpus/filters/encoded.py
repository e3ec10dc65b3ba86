"""Runs of encoded data in a text: base64 and its like, and bytes or characters written as hexadecimal numbers.

What counts as such a run is defined in `code.py`, for whose rules they are counted.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.kernel import kernel
from tokenmill_core.compiled.text_buffers import TextBuffers

MIN_BASE64, MIN_ESCAPES = 64, 8

OTHER, LETTER, DIGIT, MARK = 0, 1, 2, 4
BASE64 = np.zeros(256, np.uint8)
"""What each byte is to base64."""
BASE64[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", np.uint8)] = LETTER
BASE64[np.frombuffer(b"0123456789", np.uint8)] = DIGIT
BASE64[np.frombuffer(b"+/", np.uint8)] = MARK
HEX = np.zeros(256, np.bool_)
"""Whether each byte is a hexadecimal digit."""
HEX[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = True

NEWLINE, ZERO, LOWER_X, LOWER_U, BACKSLASH, EQUALS, COMMA = (ord(c) for c in "\n0xu\\=,")


def count_encoded(text: TextBuffers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Characters of encoded data in each document, white space left out, and of its longest run."""
    counts = _count_encoded(text.data, text.offsets)
    return counts[0], counts[1]


@numba.njit(cache=True)
def _count_encoded(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    out = np.zeros((2, len(offsets) - 1), np.int64)
    for d in range(len(offsets) - 1):
        i, end = offsets[d], offsets[d + 1]
        # A run may go on in the next line: where that would begin, and how long the run is so far.
        resumes, so_far = -1, 0
        while i < end:
            stop, length = _base64(data, i, end) if BASE64[data[i]] else (i, 0)
            if length == 0 and (data[i] == BACKSLASH or data[i] == ZERO):
                after, length = _escapes(data, i, end)
                stop = max(stop, after)
            if length > 0:
                so_far = length + (so_far if i == resumes else 0)
                resumes = stop + 1 if stop < end and data[stop] == NEWLINE else -1
                out[0, d] += length
                out[1, d] = max(out[1, d], so_far)
            i = max(stop, i + 1)
    return out


@kernel
def _base64(data: NDArray[np.uint8], i: int, end: int) -> tuple[int, int]:
    """(byte after, characters) of the run at byte `i`; 0 characters where it is not encoded data."""
    first, kinds = i, 0
    while i < end and BASE64[data[i]]:
        kinds |= BASE64[data[i]]
        i += 1
    if i - first < MIN_BASE64 or kinds & (LETTER | DIGIT) != LETTER | DIGIT:
        return i, 0
    while i < end and data[i] == EQUALS:
        i += 1
    return i, i - first


@kernel
def _escapes(data: NDArray[np.uint8], i: int, end: int) -> tuple[int, int]:
    """(byte after, characters) of the run of escapes at byte `i`; 0 characters where there are too few."""
    escapes, characters, stop = 0, 0, i
    while i < end:
        width = _escape_at(data, i, end)
        if width > 0:
            escapes += 1
            characters += width
            i += width
            stop = i
        elif escapes > 0 and (data[i] == COMMA or data[i] == 0x20 or 0x09 <= data[i] <= 0x0D):
            characters += data[i] == COMMA
            i += 1
        else:
            break
    return stop, characters if escapes >= MIN_ESCAPES else 0


@kernel
def _escape_at(data: NDArray[np.uint8], i: int, end: int) -> int:
    """Bytes of the escape at byte `i`, or 0."""
    digits = 0
    if i + 4 <= end and data[i + 1] == LOWER_X and (data[i] == ZERO or data[i] == BACKSLASH):
        digits = 2
    elif i + 6 <= end and data[i + 1] == LOWER_U and data[i] == BACKSLASH:
        digits = 4
    for k in range(digits):
        if not HEX[data[i + 2 + k]]:
            return 0
    return 2 + digits if digits else 0
