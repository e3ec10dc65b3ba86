"""Words of a text, to set tokens against.

A word is what stands between white space, if it holds a letter or a number (Unicode categories L and N); in scripts
written without spaces (Han, Kana, Thai, Lao, Khmer, Burmese) every letter is a word.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_core.compiled.utf8 import decode, is_unspaced
from tokenmill_tokenizer.cutting.characters import LETTER, NUMBER, SPACE, character_kinds


def count_words(text: TextBuffers) -> NDArray[np.int64]:
    """Words of each document."""
    return _count_words(text.data, np.ascontiguousarray(text.offsets), character_kinds())


@numba.njit(cache=True)
def _count_words(data: NDArray[np.uint8], offsets: NDArray[np.int64], kinds: NDArray[np.uint8]) -> NDArray[np.int64]:
    words = np.zeros(len(offsets) - 1, np.int64)
    for d in range(len(words)):
        i, in_word = offsets[d], False
        while i < offsets[d + 1]:
            code, width = decode(data, i)
            i += width
            if kinds[code] & SPACE:
                in_word = False
            elif kinds[code] & (LETTER | NUMBER):
                alone = is_unspaced(code)
                words[d] += alone or not in_word
                in_word = not alone
    return words
