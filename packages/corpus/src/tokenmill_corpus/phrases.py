"""Phrases in a text, upper and lower case alike, all of them looked for in one pass."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenmill_corpus.kernels import kernel

RARE_FIRST = b"zqxjkvbpygfwmuclhdrnisoate_- "
"""Bytes of phrases, from rare to frequent in English; the rarest of a phrase is what the pass looks out for."""
UPPER_A, UPPER_Z, TO_LOWER = ord("A"), ord("Z"), ord("a") - ord("A")


class Phrases(NamedTuple):
    """At most 64 phrases, of which phrase p is `data[bounds[p]:bounds[p + 1]]`."""

    data: NDArray[np.uint8]
    bounds: NDArray[np.int64]
    anchors: NDArray[np.int64]
    """Where in each phrase its rarest byte stands."""
    heads: NDArray[np.int64]
    """For each byte of text, the first phrase with this byte as its rarest, or -1."""
    nexts: NDArray[np.int64]
    """For each phrase, the next one with the same rarest byte, or -1."""


def make_phrases(phrases: Sequence[str]) -> Phrases:
    """Phrases in lower-case ASCII, ready for `find_phrases`."""
    encoded = [phrase.encode("ascii") for phrase in phrases]
    anchors, heads, nexts = [], np.full(256, -1, np.int64), []
    for number, phrase in enumerate(encoded):
        anchor = min(range(len(phrase)), key=lambda i, phrase=phrase: RARE_FIRST.index(phrase[i]))  # type: ignore[misc]
        anchors.append(anchor)
        nexts.append(heads[phrase[anchor]])
        heads[list({phrase[anchor], ord(chr(phrase[anchor]).upper())})] = number
    data = np.array(list(b"".join(encoded)), np.uint8)
    bounds = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return Phrases(data, bounds, np.array(anchors, np.int64), heads, np.array(nexts, np.int64))


@kernel
def find_phrases(text: NDArray[np.uint8], first: int, last: int, phrases: Phrases) -> int:
    """Bit p is set where `text[first:last]` holds phrase p."""
    found = 0
    for i in range(first, last):
        phrase = phrases.heads[text[i]]
        while phrase >= 0:
            if _stands_at(text, i - phrases.anchors[phrase], first, last, phrases, phrase):
                found |= 1 << phrase
            phrase = phrases.nexts[phrase]
    return found


@kernel
def _stands_at(text: NDArray[np.uint8], start: int, first: int, last: int, phrases: Phrases, phrase: int) -> bool:
    begin, end = phrases.bounds[phrase], phrases.bounds[phrase + 1]
    if start < first or start + end - begin > last:
        return False
    for k in range(end - begin):
        byte = text[start + k]
        if UPPER_A <= byte <= UPPER_Z:
            byte += TO_LOWER
        if byte != phrases.data[begin + k]:
            return False
    return True
