"""What kinds of characters a document is made of.

All thresholds are inclusive; a ratio of 1.0 (a `min_` ratio: 0) switches a rule off.

Characters are code points. White space has a rule of its own and counts in no other: shares are of the characters that
are not white space, so that indentation and blank lines change nothing. Letters, digits and symbols are those of
`character_classes.py`. A URL starts with `http://`, `https://` or `www.` and lasts until white space.

Nobody has published thresholds for these measures as we take them; the defaults drop little but tables, dumps and
lists of links, and `prep clean --preview` shows what others would drop.
"""

import numba
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tokenmill_core.compiled.kernel import kernel
from tokenmill_corpus.character_classes import SPACE, character_classes, class_at
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Family, Outcome, at_least, at_most
from tokenmill_corpus.ratios import ratio


class Characters(Family):
    """Drops documents that are mostly numbers, symbols, links, capitals or white space."""

    min_letter_ratio: float = Field(default=0.0, ge=0, le=1)
    """Smallest share of letters. Marks are not letters: in Hindi or Thai a third of a text is none."""
    max_digit_ratio: float = Field(default=0.3, ge=0)
    """Largest share of digits."""
    max_symbol_ratio: float = Field(default=0.3, ge=0)
    """Largest share of punctuation and symbols."""
    max_url_ratio: float = Field(default=0.2, ge=0)
    """Largest share of characters of URLs."""
    max_upper_ratio: float = Field(default=0.6, ge=0)
    """Largest share of letters that are capitals."""
    max_white_space_ratio: float = Field(default=0.5, ge=0)
    """Largest share of all characters that are white space."""

    def apply(self, documents: Documents) -> Outcome:
        """The rules in the order of the settings."""
        text, counts = documents.text, documents.characters
        visible = counts.characters - counts.spaces
        urls = _count_url_characters(text.data, text.offsets, character_classes())
        rules = (
            at_least("min_letter_ratio", ratio(counts.letters, visible), self.min_letter_ratio),
            at_most("max_digit_ratio", ratio(counts.digits, visible), self.max_digit_ratio),
            at_most("max_symbol_ratio", ratio(counts.symbols, visible), self.max_symbol_ratio),
            at_most("max_url_ratio", ratio(urls, visible), self.max_url_ratio),
            at_most("max_upper_ratio", ratio(counts.upper, counts.letters), self.max_upper_ratio),
            at_most("max_white_space_ratio", ratio(counts.spaces, counts.characters), self.max_white_space_ratio),
        )
        return Outcome(rules)


URL_STARTS = (b"http://", b"https://", b"www.")


@numba.njit(cache=True)
def _count_url_characters(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], classes: NDArray[np.uint8]
) -> NDArray[np.int64]:
    out = np.zeros(len(offsets) - 1, np.int64)
    for d in range(len(out)):
        i, end = offsets[d], offsets[d + 1]
        while i < end:
            if (data[i] != 0x68 and data[i] != 0x77) or not _is_url(data, i, end):  # h, w
                i += 1
                continue
            while i < end:
                what, width = class_at(data, i, classes)
                if what & SPACE:
                    break
                out[d] += 1
                i += width
    return out


@kernel
def _is_url(data: NDArray[np.uint8], i: int, end: int) -> bool:
    """Whether a URL starts at byte `i`."""
    for start in URL_STARTS:
        same = i + len(start) <= end
        for k in range(len(start)):
            same = same and data[i + k] == start[k]
        if same:
            return True
    return False
