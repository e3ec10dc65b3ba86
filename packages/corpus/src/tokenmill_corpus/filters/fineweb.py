"""FineWeb's rules (Penedo et al. 2024, section 3.6, thresholds of its code); all of them are inclusive.

Lines and duplicates are those of `lines.py`, tokens those of `words.py`. Blank lines count nowhere: not as lines, and
not as breaks between lines. Rules are switched off by a ratio of 1.0 (`min_terminal_line_ratio`: 0).
"""

import numba
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tokenmill_corpus.character_classes import TERMINAL, character_classes, class_before
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Family, Outcome, at_least, at_most
from tokenmill_corpus.lines import Lines
from tokenmill_corpus.ratios import ratio


class FineWeb(Family):
    """Drops documents that are lists, menus and other scraps rather than text."""

    min_terminal_line_ratio: float = Field(default=0.12, ge=0, le=1)
    """Smallest share of lines whose last character ends a sentence in any script (Unicode's Sentence_Terminal)."""
    max_short_line_ratio: float = Field(default=0.67, ge=0)
    """Largest share of short lines."""
    short_line_length: int = Field(default=30, ge=0)
    """Most characters of a line that is short."""
    max_duplicate_line_character_ratio: float = Field(default=0.01, ge=0)
    """Largest share of the lines' characters in lines that repeat an earlier line."""
    max_line_break_ratio: float = Field(default=0.3, ge=0)
    """Most breaks between lines for each token."""

    def apply(self, documents: Documents) -> Outcome:
        """The rules in the order of the settings."""
        text, lines = documents.text, documents.lines
        terminal = _count_terminal(text.data, text.offsets, lines, character_classes())
        short = _count_short(lines, self.short_line_length)
        line_breaks = np.maximum(lines.num_lines - 1, 0)
        rules = (
            at_least("min_terminal_line_ratio", ratio(terminal, lines.num_lines), self.min_terminal_line_ratio),
            at_most("max_short_line_ratio", ratio(short, lines.num_lines), self.max_short_line_ratio),
            at_most(
                "max_duplicate_line_character_ratio",
                documents.duplicates.line_character_ratio,
                self.max_duplicate_line_character_ratio,
            ),
            at_most("max_line_break_ratio", ratio(line_breaks, documents.words.num_tokens), self.max_line_break_ratio),
        )
        return Outcome(rules)


@numba.njit(cache=True)
def _count_terminal(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], lines: Lines, classes: NDArray[np.uint8]
) -> NDArray[np.int64]:
    """Lines of each document that end as sentences do."""
    out = np.zeros(len(lines.first), np.int64)
    for d in range(len(out)):
        for k in range(lines.first[d], lines.last[d]):
            out[d] += class_before(data, offsets[d] + lines.ends[k], classes)[0] & TERMINAL != 0
    return out


@numba.njit(cache=True)
def _count_short(lines: Lines, length: int) -> NDArray[np.int64]:
    """Lines of each document with at most `length` characters."""
    out = np.zeros(len(lines.first), np.int64)
    for d in range(len(out)):
        for k in range(lines.first[d], lines.last[d]):
            out[d] += lines.characters[k] <= length
    return out
