"""The cl100k split, compiled; with other groups of digits, llama3's and qwen2's too."""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.kernel import at, kernel
from tokenmill_tokenizer.cutting.characters import LETTER, NUMBER, SPACE, kind_at
from tokenmill_tokenizer.cutting.runs import (
    BLANK,
    FOLD,
    contraction,
    is_line_end,
    letters,
    numbers,
    signs,
    white_space,
)


@numba.njit(cache=True, nogil=True)
def cut_cl100k(
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
    kind, width = kind_at(data, i, kinds)
    after = i + width
    if kind & LETTER:
        return letters(data, after, end, kinds)
    if kind & NUMBER:
        return numbers(data, i, end, kinds, most_digits)
    contracted = contraction(data, i, end, FOLD)
    if contracted > i:
        return contracted
    next_kind, next_width = kind_at(data, after, kinds) if after < end else (SPACE, 0)
    if next_kind & LETTER and not is_line_end(at(data, i)):
        return letters(data, after + next_width, end, kinds)
    if kind & SPACE and (at(data, i) != BLANK or next_kind & (SPACE | NUMBER)):
        return white_space(data, i, end, kinds, True)
    after = signs(data, after, end, kinds)
    while after < end and is_line_end(at(data, after)):
        after += 1
    return after
