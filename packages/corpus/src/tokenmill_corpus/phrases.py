"""Phrases in a text, upper and lower case alike, all of them looked for in one pass.

A text that holds a phrase of n bytes holds one of the phrase's pieces of `PIECE` bytes at one of any n - PIECE + 1
places in a row. So the pass looks only at every `stride`-th place, and compares where a piece of a phrase stands there.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.eight_bytes import load_rest
from tokenmill_core.compiled.kernel import at, kernel

PIECE, SLOTS = 4, 4096
"""Bytes of a piece, and entries of the table of pieces."""
UPPER_A, UPPER_Z, TO_LOWER = ord("A"), ord("Z"), ord("a") - ord("A")


class Phrases(NamedTuple):
    """At most 64 phrases, of which phrase p is `data[bounds[p]:bounds[p + 1]]`, and pieces of them."""

    data: NDArray[np.uint8]
    bounds: NDArray[np.int64]
    stride: int
    heads: NDArray[np.int64]
    """For each slot, the first piece in it, or -1."""
    nexts: NDArray[np.int64]
    """For each piece, the next one in its slot, or -1."""
    owners: NDArray[np.int64]
    """The phrase of each piece."""
    places: NDArray[np.int64]
    """Where in its phrase each piece stands."""


def make_phrases(phrases: Sequence[str]) -> Phrases:
    """Phrases in lower-case ASCII of at least `PIECE` bytes, ready for `find_phrases`."""
    data = np.frombuffer("".join(phrases).encode("ascii"), np.uint8)
    bounds = np.cumsum([0, *map(len, phrases)], dtype=np.int64)
    stride = min(map(len, phrases)) - PIECE + 1
    owners, places = np.divmod(np.arange(len(phrases) * stride), stride)
    heads, nexts = np.full(SLOTS, -1), np.empty(len(owners), np.int64)
    for piece, i in enumerate(bounds[owners] + places):
        slot = _slot(data, i)
        nexts[piece], heads[slot] = heads[slot], piece
    return Phrases(data, bounds, stride, heads, nexts, owners, places)


@kernel
def find_phrases(text: NDArray[np.uint8], first: int, last: int, phrases: Phrases) -> int:
    """Bit p is set where `text[first:last]` holds phrase p."""
    found = 0
    for i in range(first, last - PIECE + 1, phrases.stride):
        piece = phrases.heads[_slot(text, i)]
        while piece >= 0:
            phrase = phrases.owners[piece]
            if _stands_at(text, i - phrases.places[piece], first, last, phrases, phrase):
                found |= 1 << phrase
            piece = phrases.nexts[piece]
    return found


@kernel
def _slot(text: NDArray[np.uint8], i: int) -> np.uint64:
    """Where in the table the piece at byte `i` belongs; the same for upper and lower case."""
    piece = load_rest(text, i, i + PIECE) | np.uint64(0x20202020)
    return (piece * np.uint64(0x9E3779B1) & np.uint64(0xFFFFFFFF)) >> np.uint64(20)


@kernel
def _stands_at(text: NDArray[np.uint8], start: int, first: int, last: int, phrases: Phrases, phrase: int) -> bool:
    begin, end = phrases.bounds[phrase], phrases.bounds[phrase + 1]
    if start < first or start + end - begin > last:
        return False
    for k in range(end - begin):
        byte = at(text, start + k)
        if UPPER_A <= byte <= UPPER_Z:
            byte += TO_LOWER
        if byte != at(phrases.data, begin + k):
            return False
    return True
