"""What the splits ask of a character: a table of Unicode 16.0 as `tokenizers` 0.23 knows it.

`characters.npy` holds runs of equal code points, (length, kinds) each, made by docs/make_split_characters.py.
"""

from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.kernel import at, kernel
from tokenmill_core.compiled.utf8 import decode
from tokenmill_tokenizer.splits import WORD_HEAD, WORD_TAIL

LETTER = 1
NUMBER = 2
SPACE = 4
HEAD = 8
"""Stands at the head of an o200k word: letters other than small ones, and combining marks."""
TAIL = 16
"""Stands at the tail of an o200k word: letters other than capitals, and combining marks."""

PATTERNS = {LETTER: r"\p{L}", NUMBER: r"\p{N}", SPACE: r"\s", HEAD: WORD_HEAD, TAIL: WORD_TAIL}
"""The regular expression of each kind."""


@cache
def character_kinds() -> NDArray[np.uint8]:
    """For each code point the kinds that it is of, as bits."""
    with (files("tokenmill_tokenizer.cutting") / "characters.npy").open("rb") as file:
        runs = np.load(file, allow_pickle=False)
    return np.repeat(runs[:, 1].astype(np.uint8), runs[:, 0])


@kernel
def kind_at(data: NDArray[np.uint8], i: int, kinds: NDArray[np.uint8]) -> tuple[int, int]:
    """(kinds, bytes) of the character at byte `i` of valid UTF-8."""
    code, width = decode(data, i)
    return int(at(kinds, code)), width
