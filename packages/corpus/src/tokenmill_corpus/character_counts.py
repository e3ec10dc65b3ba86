"""How many characters of each kind a document has, in one pass."""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_core.compiled.utf8 import decode
from tokenmill_corpus.character_classes import DIGIT, LETTER, SPACE, SYMBOL, UPPER, character_classes


class CharacterCounts(NamedTuple):
    """Characters of each document of a batch, by the classes of `character_classes.py`."""

    letters: NDArray[np.int64]
    upper: NDArray[np.int64]
    digits: NDArray[np.int64]
    symbols: NDArray[np.int64]
    spaces: NDArray[np.int64]
    characters: NDArray[np.int64]
    """All of them: code points."""

    def filter(self, keep: NDArray[np.bool_]) -> "CharacterCounts":
        """Those of the documents for which `keep` holds."""
        return CharacterCounts(*(counts[keep] for counts in self))


def count_characters(text: TextBuffers) -> CharacterCounts:
    """Counts of all documents."""
    return CharacterCounts(*_count_characters(text.data, text.offsets, character_classes()))


@numba.njit(cache=True)
def _count_characters(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], classes: NDArray[np.uint8]
) -> NDArray[np.int64]:
    out = np.zeros((6, len(offsets) - 1), np.int64)
    for d in range(len(offsets) - 1):
        letters, upper, digits, symbols, spaces, characters = 0, 0, 0, 0, 0, 0
        i = offsets[d]
        while i < offsets[d + 1]:
            code, width = decode(data, i)
            what = classes[code]
            letters += what & LETTER != 0
            upper += what & UPPER != 0
            digits += what & DIGIT != 0
            symbols += what & SYMBOL != 0
            spaces += what & SPACE != 0
            characters += 1
            i += width
        out[:, d] = (letters, upper, digits, symbols, spaces, characters)
    return out
