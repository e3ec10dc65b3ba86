"""Characters of UTF-8 text for compiled code: decoding, white space, and scripts written without spaces."""

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.kernel import at, kernel


@kernel
def decode(text: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """(code point, bytes) of the character at byte `i` of valid UTF-8."""
    first = int(at(text, i))
    if first < 0x80:
        return first, 1
    if first < 0xE0:
        return ((first & 0x1F) << 6) | (at(text, i + 1) & 0x3F), 2
    if first < 0xF0:
        return ((first & 0x0F) << 12) | ((at(text, i + 1) & 0x3F) << 6) | (at(text, i + 2) & 0x3F), 3
    return (
        ((first & 0x07) << 18)
        | ((at(text, i + 1) & 0x3F) << 12)
        | ((at(text, i + 2) & 0x3F) << 6)
        | (at(text, i + 3) & 0x3F)
    ), 4


@kernel
def is_space(code: int) -> bool:
    """Whether `str.isspace` holds."""
    if code < 0x80:
        return code == 0x20 or 0x09 <= code <= 0x0D or 0x1C <= code <= 0x1F
    return code in (0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000) or 0x2000 <= code <= 0x200A


@kernel
def is_unspaced(code: int) -> bool:
    """Whether the character belongs to a script written without spaces: there every character counts as a word."""
    if code < 0x0E00:
        return False
    return (
        code <= 0x0EFF  # Thai, Lao
        or 0x1000 <= code <= 0x109F  # Burmese
        or 0x1780 <= code <= 0x17FF  # Khmer
        or 0x3041 <= code <= 0x30FF  # Kana
        or 0x31F0 <= code <= 0x31FF
        or 0x3400 <= code <= 0x4DBF  # Han
        or 0x4E00 <= code <= 0x9FFF
        or 0xF900 <= code <= 0xFAFF
        or 0x20000 <= code <= 0x323AF
    )
