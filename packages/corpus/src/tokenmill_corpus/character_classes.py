"""What kind of character a code point is, the same on every Python: a table of Unicode 18.0 that the package carries.

`character_classes.npy` holds runs of equal code points, (length, classes) each, made by docs/make_character_classes.py.
"""

from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.kernel import at, kernel

LETTER = 1
"""General category L."""
DIGIT = 2
"""Nd: decimal digits of all scripts."""
SYMBOL = 4
"""Punctuation (P), and symbols (Sm, Sc, Sk) but for pictographs (So) and the emoji's colours of skin."""
UPPER = 8
"""Lu and Lt."""
SPACE = 16
"""White space, as `utf8.is_space`."""
UNSPACED = 32
"""Of a script written without spaces, as `utf8.is_unspaced`, and no symbol."""
TERMINAL = 64
"""Sentence_Terminal: what ends a sentence in any script, such as . ! ? 。 ؟ ।"""
QUOTE = 128
"""Quotation_Mark, single and double, of any script."""


@cache
def character_classes() -> NDArray[np.uint8]:
    """For each code point the classes it belongs to, as bits."""
    with (files("tokenmill_corpus") / "character_classes.npy").open("rb") as file:
        runs = np.load(file, allow_pickle=False)
    return np.repeat(runs[:, 1].astype(np.uint8), runs[:, 0])


@kernel
def class_at(text: NDArray[np.uint8], i: int, classes: NDArray[np.uint8]) -> tuple[int, int]:
    """(classes, bytes) of the character at byte `i` of valid UTF-8."""
    byte = at(text, i)
    if byte < 0x80:
        return int(at(classes, byte)), 1
    if byte < 0xE0:
        return int(at(classes, ((byte & 0x1F) << 6) | (at(text, i + 1) & 0x3F))), 2
    code = ((byte & 0x0F) << 12) | ((at(text, i + 1) & 0x3F) << 6) | (at(text, i + 2) & 0x3F)
    if byte < 0xF0:
        return int(at(classes, code)), 3
    return int(at(classes, ((code & 0x7FFF) << 6) | (at(text, i + 3) & 0x3F))), 4


@kernel
def class_before(text: NDArray[np.uint8], i: int, classes: NDArray[np.uint8]) -> tuple[int, int]:
    """(classes, bytes) of the character that ends before byte `i` of valid UTF-8."""
    first = i - 1
    while at(text, first) & 0xC0 == 0x80:
        first -= 1
    return class_at(text, first, classes)
