"""Thirty-two bytes of a text at a time, as one vector: which of them are of some kind, as the bits of a mask.

Written in LLVM's own vectors, which it compiles for the processor at hand, whatever its registers hold. All functions
read past the bytes that are asked about: see `MARGIN`.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

WIDTH = 32
MARGIN = 32
"""Bytes that have to lie before and behind a text, so that vectors that overlap its ends stay within the buffer."""

_VECTOR = ir.VectorType(ir.IntType(8), WIDTH)
_MASK = ir.IntType(WIDTH)


class _Window:
    """What an intrinsic makes its code with: vectors of the bytes from `first` on, or some bytes before."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.builder = builder
        self._data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        self._first = arguments[1]

    def load(self, before: int = 0) -> Any:
        first = self.builder.sub(self._first, ir.Constant(self._first.type, before))
        pointer = self.builder.bitcast(self.builder.gep(self._data, [first]), _VECTOR.as_pointer())
        return self.builder.load(pointer, align=1)

    def each(self, vector: Any, comparison: str, byte: int) -> Any:
        return self.builder.icmp_unsigned(comparison, vector, ir.Constant(_VECTOR, [byte] * WIDTH))

    def any(self, *conditions: Any) -> Any:
        first, *others = conditions
        for other in others:
            first = self.builder.or_(first, other)
        return first

    def mask(self, condition: Any) -> Any:
        bits = self.builder.bitcast(condition, _MASK)
        bits = bits if sys.byteorder == "little" else self.builder.bitreverse(bits)
        return self.builder.zext(bits, ir.IntType(64))


def _mask_of(condition: Callable[[_Window], Any]) -> Any:
    """`f(text, first)`: the mask, as a uint64, of the bytes from `first` on for which `condition` holds."""

    def typed(typing_context: Any, text: Any, first: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            window = _Window(context, builder, signature, arguments)
            return window.mask(condition(window))

        return types.uint64(text, types.int64), generate

    return intrinsic(typed)


def _is_not_ascii(window: _Window) -> Any:
    return window.each(window.load(), ">=", 0x80)


def _is_backslash(window: _Window) -> Any:
    return window.each(window.load(), "==", 0x5C)


def _ends_plain_string(window: _Window) -> Any:
    here = window.load()
    return window.any(window.each(here, "==", 0x22), window.each(here, "==", 0x5C), window.each(here, "<", 0x20))


def _is_not_utf8(window: _Window) -> Any:
    here, one_before, two_before, three_before = (window.load(before) for before in range(4))
    builder = window.builder
    continues = builder.and_(window.each(here, ">=", 0x80), window.each(here, "<", 0xC0))
    has_to = window.any(
        window.each(one_before, ">=", 0xC0), window.each(two_before, ">=", 0xE0), window.each(three_before, ">=", 0xF0)
    )
    never = window.any(window.each(here, "==", 0xC0), window.each(here, "==", 0xC1), window.each(here, ">=", 0xF5))
    # Characters written longer than need be, surrogates, and what lies past U+10FFFF show in the second byte.
    seconds = (
        builder.and_(window.each(one_before, "==", lead), window.each(here, comparison, byte))
        for lead, comparison, byte in ((0xE0, "<", 0xA0), (0xED, ">=", 0xA0), (0xF0, "<", 0x90), (0xF4, ">=", 0x90))
    )
    return window.any(builder.xor(continues, has_to), never, *seconds)


Masking = Callable[[NDArray[np.uint8], int], np.uint64]
not_ascii: Masking = _mask_of(_is_not_ascii)
backslashes: Masking = _mask_of(_is_backslash)
string_stops: Masking = _mask_of(_ends_plain_string)
"""Quotes, backslashes and control characters: where a JSON string cannot be taken as it is."""
utf8_errors: Masking = _mask_of(_is_not_utf8)
"""Where, in view of the three bytes before, there is no UTF-8 any more. Right for the first error of a text alone."""
