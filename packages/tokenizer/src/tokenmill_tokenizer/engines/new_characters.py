"""Texts with characters that one library knows and the other does not.

gigatoken follows Unicode 17, `tokenizers` 16: what came between is letter, digit or sign to the one and nothing to the
other, so that texts may be cut differently there. All other characters are of one kind to both.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.eight_bytes import HIGH, load
from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_core.compiled.utf8 import decode

CHANGED = 0x0295
"""A small letter in Unicode 16, in 17 one that is neither small nor a capital."""

RANGES = (
    (CHANGED, CHANGED),
    *((0x088F, 0x088F), (0x0C5C, 0x0C5C), (0x0CDC, 0x0CDC), (0x1ACF, 0x1ADD), (0x1AE0, 0x1AEB), (0x20C1, 0x20C1)),
    *((0x2B96, 0x2B96), (0xA7CE, 0xA7CF), (0xA7D2, 0xA7D2), (0xA7D4, 0xA7D4), (0xA7F1, 0xA7F1), (0xFBC3, 0xFBD2)),
    *((0xFD90, 0xFD91), (0xFDC8, 0xFDCE), (0x10940, 0x10959), (0x10EC5, 0x10EC7), (0x10ED0, 0x10ED8)),
    *((0x10EFA, 0x10EFB), (0x11B60, 0x11B67), (0x11DB0, 0x11DDB), (0x11DE0, 0x11DE9), (0x16EA0, 0x16EB8)),
    *((0x16EBB, 0x16ED3), (0x16FF2, 0x16FF6), (0x187F8, 0x187FF), (0x18D09, 0x18D1E), (0x18D80, 0x18DF2)),
    *((0x1CCFA, 0x1CCFC), (0x1CEBA, 0x1CED0), (0x1CEE0, 0x1CEF0), (0x1E6C0, 0x1E6DE), (0x1E6E0, 0x1E6F5)),
    *((0x1E6FE, 0x1E6FF), (0x1F6D8, 0x1F6D8), (0x1F777, 0x1F77A), (0x1F8D0, 0x1F8D8), (0x1FA54, 0x1FA57)),
    *((0x1FA8A, 0x1FA8A), (0x1FA8E, 0x1FA8E), (0x1FAC8, 0x1FAC8), (0x1FACD, 0x1FACD), (0x1FAEA, 0x1FAEA)),
    *((0x1FAEF, 0x1FAEF), (0x1FBFA, 0x1FBFA), (0x2B73A, 0x2B73F), (0x2CEA2, 0x2CEAD), (0x323B0, 0x33479)),
)
"""First and last of those: the one, and the 4803 characters added in Unicode 17.0."""

END = RANGES[-1][1] + 1
"""All of them are below."""

IS_NEW = np.zeros(END, np.bool_)
for _first, _last in RANGES:
    IS_NEW[_first : _last + 1] = True

MAY_BEGIN_NEW = np.zeros(256, np.bool_)
"""Which bytes a new character can begin with: none of Latin, Greek or Cyrillic, nor of most Chinese."""
MAY_BEGIN_NEW[[chr(code).encode()[0] for code in np.flatnonzero(IS_NEW)]] = True


def have_new_characters(texts: TextBuffers) -> NDArray[np.bool_]:
    """Which texts have any."""
    return _have_new_characters(texts.data, np.ascontiguousarray(texts.offsets), IS_NEW, MAY_BEGIN_NEW)


@numba.njit(cache=True)
def _have_new_characters(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], is_new: NDArray[np.bool_], may_begin: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    found = np.zeros(len(offsets) - 1, np.bool_)
    for d in range(len(found)):
        i, last = offsets[d], offsets[d + 1]
        while i < last and not found[d]:
            while i + 8 <= last and load(data, i) & HIGH == 0:
                i += 8
            # Bytes within a character are none that a new one can begin with.
            if i < last and may_begin[data[i]]:
                code, width = decode(data, i)
                found[d] = code < len(is_new) and is_new[code]
                i += width
            else:
                i += 1
    return found
