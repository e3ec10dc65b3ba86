"""Lines and paragraphs that have something in them.

line: what stands between newlines, without the white space at its ends. Blank lines are no lines: they are never
    duplicates of each other and count nowhere, so an article scores as its copy with other spacing.
paragraph: lines between blank lines.
duplicate: a line (paragraph) equal to an earlier one of the same document; the first one is none.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.eight_bytes import count_byte, count_continuing, find_byte, load, load_rest
from tokenmill_core.compiled.hashing import add, empty_set, hash_bytes, mix, set_size
from tokenmill_core.compiled.kernel import kernel
from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_core.compiled.utf8 import decode, is_space
from tokenmill_corpus.ratios import ratio


class Lines(NamedTuple):
    """Lines of a batch; compiled code takes it as it is. Those of document d are `first[d]:last[d]`."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    starts: NDArray[np.int64]
    """Byte of the document where the line starts."""
    ends: NDArray[np.int64]
    characters: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    opens: NDArray[np.bool_]
    """Whether a paragraph begins with it."""

    @property
    def num_lines(self) -> NDArray[np.int64]:
        """Lines of each document."""
        return self.last - self.first

    def filter(self, keep: NDArray[np.bool_]) -> "Lines":
        """Those of the documents for which `keep` holds."""
        return self._replace(first=self.first[keep], last=self.last[keep])


@dataclass(frozen=True)
class Duplicates:
    """Shares of each document that are duplicates; 0 where it has no lines."""

    line_ratio: NDArray[np.float64]
    """Duplicate lines over lines."""
    line_character_ratio: NDArray[np.float64]
    """Characters of duplicate lines over characters of lines."""
    paragraph_ratio: NDArray[np.float64]
    paragraph_character_ratio: NDArray[np.float64]


def find_lines(text: TextBuffers) -> Lines:
    """The lines of all documents."""
    first, last = np.empty(len(text), np.int64), np.empty(len(text), np.int64)
    room = len(text) + count_byte(text.data, text.offsets[0], text.offsets[-1], NEWLINE)
    starts, ends, characters = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    hashes, opens = np.empty(room, np.uint64), np.empty(room, np.bool_)
    lines = Lines(first, last, starts, ends, characters, hashes, opens)
    _find_lines(text.data, text.offsets, lines)
    return lines


def find_duplicates(lines: Lines) -> Duplicates:
    """How much of each document is said again."""
    counts = _count_duplicates(lines)
    repeated, repeated_characters, paragraphs, paragraphs_repeated, paragraph_characters, characters = counts.T
    return Duplicates(
        line_ratio=ratio(repeated, lines.num_lines),
        line_character_ratio=ratio(repeated_characters, characters),
        paragraph_ratio=ratio(paragraphs_repeated, paragraphs),
        paragraph_character_ratio=ratio(paragraph_characters, characters),
    )


NEWLINE = 10


@kernel
def _find_lines(data: NDArray[np.uint8], offsets: NDArray[np.int64], out: Lines) -> None:
    line = 0
    for d in range(len(offsets) - 1):
        origin, end = offsets[d], offsets[d + 1]
        i, blank = origin, True
        out.first[d] = line
        while i < end:
            stop = find_byte(data, i, end, NEWLINE)
            first, last = strip(data, i, stop)
            i = stop + 1
            if first < last:
                out.starts[line], out.ends[line], out.opens[line] = first - origin, last - origin, blank
                out.hashes[line] = hash_bytes(data, first, last)
                out.characters[line] = count_characters(data, first, last)
                line += 1
            blank = first >= last
        out.last[d] = line


@kernel
def strip(text: NDArray[np.uint8], first: int, last: int) -> tuple[int, int]:
    """`text[first:last]` without white space at its ends."""
    while first < last:
        code, width = decode(text, first)
        if not is_space(code):
            break
        first += width
    while last > first:
        i = last - 1
        while text[i] & 0xC0 == 0x80:
            i -= 1
        if not is_space(decode(text, i)[0]):
            break
        last = i
    return first, last


@kernel
def count_characters(text: NDArray[np.uint8], first: int, last: int) -> int:
    """Code points of `text[first:last]`."""
    count = last - first
    while last - first >= 8:
        count -= count_continuing(load(text, first))
        first += 8
    return count - count_continuing(load_rest(text, first, last))


@numba.njit(cache=True)
def _count_duplicates(lines: Lines) -> NDArray[np.int64]:
    """Columns: lines repeated, their characters, paragraphs, those repeated, their characters, characters of lines."""
    num_documents = len(lines.first)
    out = np.zeros((num_documents, 6), np.int64)
    room = 0
    for d in range(num_documents):
        room = max(room, lines.last[d] - lines.first[d])
    seen_lines, seen_paragraphs = empty_set(room), empty_set(room)
    for d in range(num_documents):
        size = set_size(lines.last[d] - lines.first[d])
        seen_lines[:size] = 0
        seen_paragraphs[:size] = 0
        _count_in_document(lines, d, seen_lines[:size], seen_paragraphs[:size], out[d])
    return out


@kernel
def _count_in_document(
    lines: Lines,
    d: int,
    seen_lines: NDArray[np.uint64],
    seen_paragraphs: NDArray[np.uint64],
    out: NDArray[np.int64],
) -> None:
    paragraph, length = np.uint64(0), 0
    for k in range(lines.first[d], lines.last[d]):
        seen = add(seen_lines, lines.hashes[k])
        out[0] += seen
        out[1] += seen * lines.characters[k]
        out[5] += lines.characters[k]
        paragraph = mix(paragraph ^ lines.hashes[k]) | np.uint64(1)  # known by its lines, in their order
        length += lines.characters[k]
        if k + 1 == lines.last[d] or lines.opens[k + 1]:
            seen = add(seen_paragraphs, paragraph)
            out[2] += 1
            out[3] += seen
            out[4] += seen * length
            paragraph, length = np.uint64(0), 0
