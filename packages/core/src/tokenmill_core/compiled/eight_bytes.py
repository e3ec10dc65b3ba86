"""Eight bytes of a text at a time, as one integer: loops over bytes made short, on any processor."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from tokenmill_core.compiled.kernel import at, kernel

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

    return types.uint64(text, types.int64), generate


load: Callable[[NDArray[np.uint8], int], np.uint64] = intrinsic(_load)  # type: ignore[assignment]
"""`load(text, first)`: eight bytes from `first` on as a uint64, little end first. None of them may lie outside."""


def _trailing_zeros(typing_context: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


trailing_zeros: Callable[[np.uint64], int] = intrinsic(_trailing_zeros)  # type: ignore[assignment]
"""How many bits of a uint64 lie below the lowest one that is set; 64 where none is."""


def _copy(typing_context: Any, text: Any, first: Any, last: Any, out: Any, start: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, first, last, _, start = arguments
        source, target = (context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 3))
        num_bytes = builder.sub(last, first)
        target, source = builder.gep(target, [start]), builder.gep(source, [first])
        cgutils.raw_memcpy(builder, target, source, num_bytes, 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.none(text, types.int64, types.int64, out, types.int64), generate


copy: Callable[[NDArray[np.uint8], int, int, NDArray[np.uint8], int], None] = intrinsic(_copy)  # type: ignore[assignment]
"""`copy(text, first, last, out, start)`: write `text[first:last]` to byte `start` of `out`."""


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
    before = ~stops & (stops - ONE)  # all bits below the first stop's
    return trailing_zeros(stops) >> 3, letters & before & HIGH != 0


@kernel
def count_continuing(eight: np.uint64) -> int:
    """How many of eight bytes of UTF-8 are not the first of their character: those of the form 10xxxxxx."""
    continuing = (eight & ~(eight << ONE) & HIGH) >> np.uint64(7)
    return np.int64(continuing * EACH >> np.uint64(56))  # type: ignore[return-value]  # signed, for numba


@kernel
def count_byte(text: NDArray[np.uint8], first: int, last: int, byte: int) -> int:
    """How often `byte` stands in `text[first:last]`."""
    count = 0
    for i in range(first, last):
        count += at(text, i) == byte
    return count


@kernel
def find_byte(text: NDArray[np.uint8], first: int, last: int, byte: int) -> int:
    """Where `byte` first stands in `text[first:last]`; `last` if nowhere."""
    wanted = EACH * np.uint64(byte)
    while first + 8 <= last:
        differs = load(text, first) ^ wanted
        # The lowest bit set is that of the first byte that is 0; above it, borrowing may set others.
        equal = (differs - EACH) & ~differs & HIGH
        if equal != 0:
            return first + (trailing_zeros(equal) >> 3)
        first += 8
    while first < last and text[first] != byte:
        first += 1
    return first
