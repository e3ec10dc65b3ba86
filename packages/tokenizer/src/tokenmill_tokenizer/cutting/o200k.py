"""The o200k split, compiled."""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.kernel import at, kernel
from tokenmill_tokenizer.cutting.characters import HEAD, NUMBER, SPACE, TAIL, kind_at
from tokenmill_tokenizer.cutting.runs import (
    BLANK,
    FOLD,
    SLASH,
    contraction,
    is_line_end,
    numbers,
    signs,
    tails,
    white_space,
)


@numba.njit(cache=True, nogil=True)
def cut_o200k(
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
    if kind & NUMBER:
        return numbers(data, i, end, kinds, most_digits)
    # A mark may stand before a word and may begin one: both readings end alike.
    first = i if kind & (HEAD | TAIL) or is_line_end(at(data, i)) else i + width
    after = _word(data, first, end, kinds)
    if after > first:
        return contraction(data, after, end, FOLD)
    after = i + width
    next_kind = kind_at(data, after, kinds)[0] if after < end else SPACE
    if kind & SPACE and (at(data, i) != BLANK or next_kind & (NUMBER | SPACE)):
        return white_space(data, i, end, kinds, True)
    after = signs(data, after, end, kinds)
    while after < end and (is_line_end(at(data, after)) or at(data, after) == SLASH):
        after += 1
    return after


@kernel
def _word(data: NDArray[np.uint8], i: int, end: int, kinds: NDArray[np.uint8]) -> int:
    """The end of heads, then tails, at least one tail; where that fails, of heads alone.

    Heads give back to tails only what is both: the word then ends at the last such character, before the capitals that
    follow it. That needs no second look, so no text takes more than linear time.
    """
    begin = last_tail = i
    while i < end:
        kind, width = kind_at(data, i, kinds)
        if not kind & HEAD:
            if kind & TAIL:
                return tails(data, i, end, kinds)
            break
        i += width
        if kind & TAIL:
            last_tail = i
    return last_tail if last_tail > begin else i
