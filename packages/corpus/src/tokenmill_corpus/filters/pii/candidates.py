"""Where something may stand: compiled scans of a whole batch, so that patterns are tried at few places.

bytes ─▶ scan ─▶ (start, end, first and last byte of the document) ─▶ pattern, on that stretch and a little more
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers

Span = tuple[int, int]
"""First byte and the byte after the last, in the batch's buffer."""


Kernel = Callable[..., int]
"""(data, offsets, table to put rows of start, end, first, last into, arguments) ─▶ rows found, put there or not."""


class Stretch(NamedTuple):
    """Part of a document, cut out to be looked at."""

    data: bytes
    start: int
    """Where in the batch's buffer `data` begins."""
    candidate: Span
    """Where in `data` the candidate is."""


def stretches(text: TextBuffers, candidates: NDArray[np.int64], before: int, after: int) -> Iterator[Stretch]:
    """Each candidate with up to so many bytes of its document before and after it."""
    view = memoryview(text.data.data)
    for start, end, first, last in candidates.tolist():
        low, high = max(first, start - before), min(last, end + after)
        yield Stretch(bytes(view[low:high]), low, (start - low, end - low))


def scan(kernel: Kernel, text: TextBuffers, *arguments: int) -> NDArray[np.int64]:
    """The rows that a kernel finds. A table that grows within the kernel would cost it nine tenths of its speed."""
    offsets = np.ascontiguousarray(text.offsets)
    found = np.empty((len(text.data) // 1024 + 16, 4), np.int64)
    count = kernel(text.data, offsets, found, *arguments)
    if count > len(found):
        found = np.empty((count, 4), np.int64)
        kernel(text.data, offsets, found, *arguments)
    return found[:count]


def without_overlaps(spans: Iterable[Span]) -> list[Span]:
    """In order, and of two that overlap the one that begins first, or of those the longer one."""
    kept: list[Span] = []
    for start, end in sorted(set(spans), key=lambda span: (span[0], -span[1])):
        if not kept or start >= kept[-1][1]:
            kept.append((start, end))
    return kept


@numba.njit(cache=True)
def put(found: NDArray[np.int64], count: int, start: int, end: int, first: int, last: int) -> int:
    """Put a candidate of the document from `first` to `last` into row `count`, if there is one; the new count."""
    if count < len(found):
        found[count, 0], found[count, 1], found[count, 2], found[count, 3] = start, end, first, last
    return count + 1


@numba.njit(cache=True)
def is_digit(byte: int) -> bool:
    """0 to 9."""
    return 48 <= byte <= 57


@numba.njit(cache=True)
def is_word(byte: int) -> bool:
    """ASCII letters, digits and `_`."""
    return 48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122 or byte == 95


@numba.njit(cache=True)
def is_hex(byte: int) -> bool:
    """Hexadecimal digits of either case."""
    return 48 <= byte <= 57 or 65 <= byte <= 70 or 97 <= byte <= 102


@numba.njit(cache=True)
def digit_runs(data: NDArray[np.uint8], offsets: NDArray[np.int64], found: NDArray[np.int64], min_digits: int) -> int:
    """Digits and what may separate them within one number, where there are at least `min_digits`.

    Separators, two in a row at most: space, - . / ( ), no-break spaces, dashes. `+` and `(` before the first belong.
    """
    count = 0
    for d in range(len(offsets) - 1):
        first, last = offsets[d], offsets[d + 1]
        i = first
        while i < last:
            if not is_digit(data[i]):
                i += 1
                continue
            start, end, digits, gap = i, i, 0, 0
            while i < last:
                if is_digit(data[i]):
                    digits, gap, i = digits + 1, 0, i + 1
                    end = i
                    continue
                width = _separator(data, i, last)
                gap += 1
                if width == 0 or gap > 2:
                    break
                i += width
            i = max(i, end)
            if digits >= min_digits:
                while start > first and (data[start - 1] == 43 or data[start - 1] == 40):
                    start -= 1
                count = put(found, count, start, end, first, last)
    return count


@numba.njit(cache=True)
def _separator(data: NDArray[np.uint8], i: int, last: int) -> int:
    """Bytes of the separator at `i`, or 0."""
    byte = data[i]
    if byte == 32 or byte == 40 or byte == 41 or 45 <= byte <= 47:
        return 1
    if byte == 0xC2 and i + 1 < last and data[i + 1] == 0xA0:
        return 2
    if byte == 0xE2 and i + 2 < last and data[i + 1] == 0x80:
        return 3 if 0x90 <= data[i + 2] <= 0x93 or data[i + 2] == 0xAF else 0
    return 0
