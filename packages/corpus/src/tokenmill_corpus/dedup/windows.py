"""Windows: runs of a fixed number of bytes inside documents, and the anchors by which equal ones find each other.

A window's anchor is the run of `width // 2` bytes in it whose hash is least, of several the last. It depends on the
window's bytes alone, so equal windows have equal anchors at the same place inside. Neighbouring windows mostly share
theirs, so there are far fewer anchors than windows (winnowing: Schleimer, Wilkerson and Aiken 2003).

Places are bytes, counted from the first document's first byte.
"""

from collections.abc import Iterator

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_corpus.dedup.window_hashes import fingerprint_runs, hash_runs, leaving_bytes

_BLOCK = 1 << 13
"""Windows looked at together: what is known of each then fits into the cache."""
_PIECE = 1 << 20
"""Bytes of text whose windows are held together."""


def pieces_of(offsets: NDArray[np.int64], width: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """(place of the first byte, offsets) of pieces of documents that together have each window once, in order.

    A piece is a few documents, or a part of one: about 1 MiB, or `2 * width` bytes where that is more. Documents
    without a window may be in none.
    """
    most = max(_PIECE, width)
    d, num_documents = 0, len(offsets) - 1
    while d < num_documents:
        last = max(d + 1, int(np.searchsorted(offsets, offsets[d] + most, side="right")) - 1)
        # Only a piece of one document can be larger: it is cut where windows begin.
        for first in range(int(offsets[d]), max(int(offsets[last]) - width + 1, int(offsets[d])), most):
            piece = offsets[d : last + 1].copy()
            piece[0], piece[-1] = first, min(first + most + width - 1, offsets[last])
            yield first - int(offsets[0]), piece
        d = last


@numba.njit(cache=True)
def anchors_of(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], width: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """(hashes, places) of the anchors of all windows of `width` bytes, in order."""
    hashes, anchors = np.empty(_BLOCK + width, np.uint64), np.empty(_BLOCK, np.int64)
    keys, places, n = np.empty(1024, np.uint64), np.empty(1024, np.int64), 0
    for d in range(len(offsets) - 1):
        for first in range(offsets[d], offsets[d + 1] - width + 1, _BLOCK):
            count = min(_BLOCK, offsets[d + 1] - width + 1 - first)
            _find_anchors(data, first, count, width, hashes, anchors)
            for i in range(count):
                place = first - offsets[0] + anchors[i]
                if n and places[n - 1] == place:
                    continue
                if n == len(keys):
                    keys, places = np.concatenate((keys, keys)), np.concatenate((places, places))
                keys[n], places[n] = hashes[anchors[i]], place
                n += 1
    return keys[:n].copy(), places[:n].copy()


@numba.njit(cache=True)
def windows_of(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], width: int, repeated: NDArray[np.bool_]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]:
    """(keys, checks, places) of the windows whose anchors are `repeated`, a value for each place."""
    hashes, anchors = np.empty(_BLOCK + width, np.uint64), np.empty(_BLOCK, np.int64)
    keys, checks, places = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.int64)
    leaving, n = leaving_bytes(width), 0
    for d in range(len(offsets) - 1):
        for first in range(offsets[d], offsets[d + 1] - width + 1, _BLOCK):
            count = min(_BLOCK, offsets[d + 1] - width + 1 - first)
            origin = first - offsets[0]
            _find_anchors(data, first, count, width, hashes, anchors)
            if n + count > len(keys):
                keys, checks = np.concatenate((keys, keys)), np.concatenate((checks, checks))
                places = np.concatenate((places, places))
            i = 0
            while i < count:
                start = i
                while i < count and repeated[origin + anchors[i]]:
                    places[n + i - start] = origin + i
                    i += 1
                if i > start:
                    fingerprint_runs(data, first + start, i - start, width, leaving, keys[n:], checks[n:])
                    n += i - start
                i += 1
    return keys[:n].copy(), checks[:n].copy(), places[:n].copy()


@numba.njit(cache=True)
def _find_anchors(
    data: NDArray[np.uint8],
    first: int,
    count: int,
    width: int,
    hashes: NDArray[np.uint64],
    anchors: NDArray[np.int64],
) -> None:
    """Write the anchors of the `count` windows from byte `first` on, counted from there, and the hashes there are."""
    length = width // 2
    span, least = width - length + 1, -1
    hash_runs(data, first, count + span - 1, length, hashes)
    for window in range(count):
        newest = window + span - 1
        if least < window:
            least = window
            for i in range(window + 1, newest + 1):
                if hashes[i] <= hashes[least]:
                    least = i
        elif hashes[newest] <= hashes[least]:
            least = newest
        anchors[window] = least


@numba.njit(cache=True)
def covered(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], width: int, repeated: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(document, start, end) of what windows at `repeated` places cover, without parts of characters at the ends."""
    spans, n = np.empty((3, 1024), np.int64), 0
    for d in range(len(offsets) - 1):
        origin, i = offsets[d], offsets[d]
        last_window = offsets[d + 1] - width
        while i <= last_window:
            if not repeated[i - offsets[0]]:
                i += 1
                continue
            start, end = i, i + width
            while i <= min(end, last_window):
                if repeated[i - offsets[0]]:
                    end = i + width
                i += 1
            while start < end and data[start] & 0xC0 == 0x80:
                start += 1
            while end > start and end < offsets[d + 1] and data[end] & 0xC0 == 0x80:
                end -= 1
            if start == end:
                continue
            if n == spans.shape[1]:
                spans = np.concatenate((spans, spans), axis=1)
            spans[0, n], spans[1, n], spans[2, n] = d, start - origin, end - origin
            n += 1
    return spans[0, :n].copy(), spans[1, :n].copy(), spans[2, :n].copy()
