"""Eight bytes of a text at a time, as one integer: loops over bytes made short, on any processor."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from tokenmill_corpus.kernels import kernel

ONE = np.uint64(1)
EACH = np.uint64(0x0101010101010101)
"""1 in each byte."""
HIGH = np.uint64(0x8080808080808080)
"""The high bit of each byte."""


def _load(typing_context: Any, text: Any, first: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        loaded = builder.load(pointer, align=1)
        return loaded if sys.byteorder == "little" else builder.bswap(loaded)

    return types.uint64(text, first), generate


load: Callable[[NDArray[np.uint8], int], np.uint64] = intrinsic(_load)  # type: ignore[assignment]
"""`load(text, first)`: eight bytes from `first` on as a uint64, little end first. None of them may lie outside."""


@kernel
def load_rest(text: NDArray[np.uint8], first: int, last: int) -> np.uint64:
    """The bytes `first` to `last`, at most seven, little end first."""
    if first + 8 <= len(text):
        return load(text, first) & ((ONE << np.uint64(8 * (last - first))) - ONE)
    rest = np.uint64(0)
    for i in range(last - 1, first - 1, -1):
        rest = rest << np.uint64(8) | np.uint64(text[i])
    return rest


@kernel
def alphanumeric_run(eight: np.uint64) -> tuple[int, bool]:
    """How many ASCII letters and digits the eight bytes begin with, and whether a letter is among these."""
    # With the high bits off, adding 0x80 - c to a byte sets its high bit where the byte is c or more.
    low = eight & ~HIGH
    folded = low | EACH * np.uint64(0x20)
    letters = (folded + EACH * np.uint64(0x80 - 0x61)) & ~(folded + EACH * np.uint64(0x80 - 0x7B))
    digits = (low + EACH * np.uint64(0x80 - 0x30)) & ~(low + EACH * np.uint64(0x80 - 0x3A))
    stops = ~((letters | digits) & ~eight) & HIGH
    if stops == 0:
        return 8, letters & HIGH != 0
    before = (stops & (~stops + ONE)) - ONE  # all bits below the first stop's
    return _bytes_below(stops), letters & before & HIGH != 0


@kernel
def find_byte(text: NDArray[np.uint8], first: int, last: int, byte: int) -> int:
    """Where `byte` first stands in `text[first:last]`; `last` if nowhere."""
    wanted = EACH * np.uint64(byte)
    while first + 8 <= last:
        differs = load(text, first) ^ wanted
        # The lowest bit set is that of the first byte that is 0; above it, borrowing may set others.
        equal = (differs - EACH) & ~differs & HIGH
        if equal != 0:
            return first + _bytes_below(equal)
        first += 8
    while first < last and text[first] != byte:
        first += 1
    return first


@kernel
def _bytes_below(marks: np.uint64) -> int:
    """How many bytes lie below the lowest of the marks, which are high bits of bytes."""
    below = (marks & (~marks + ONE)) - ONE
    return np.int64(((below & EACH) * EACH >> np.uint64(56)) - ONE)  # type: ignore[return-value]  # signed, for numba
