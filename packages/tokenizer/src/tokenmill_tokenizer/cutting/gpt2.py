"""The gpt2 split, compiled."""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.kernel import at, kernel
from tokenmill_tokenizer.cutting.characters import LETTER, NUMBER, SPACE, kind_at
from tokenmill_tokenizer.cutting.runs import BLANK, contraction, letters, numbers, signs, white_space


@numba.njit(cache=True, nogil=True)
def cut_gpt2(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    most_digits: int,
    ends: NDArray[np.int64],
) -> int:
    """Write where the pieces end to `ends`, and give their number."""
    piece = 0
    for d in range(len(offsets) - 1):
        i, end = offsets[d], offsets[d + 1]
        while i < end:
            i = _piece(data, i, end, kinds, most_digits)
            ends[piece] = i
            piece += 1
    return piece


@kernel
def _piece(data: NDArray[np.uint8], i: int, end: int, kinds: NDArray[np.uint8], most_digits: int) -> int:
    """The end of the piece that begins at byte `i`."""
    after = contraction(data, i, end, 0)
    if after > i:
        return after
    first = i
    if at(data, i) == BLANK and i + 1 < end:
        first = i + 1
    kind, width = kind_at(data, first, kinds)
    if kind & LETTER:
        return letters(data, first + width, end, kinds)
    if kind & NUMBER:
        return numbers(data, first, end, kinds, most_digits)
    if kind & SPACE:
        return white_space(data, i, end, kinds, False)
    return signs(data, first, end, kinds)
