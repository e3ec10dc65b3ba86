"""The grammar of JSON (RFC 8259) for compiled code: where a value ends, and what kind it is.

Stricter than the parsers: what they read differently from one another, or what is replaced later, counts as no value.
That is U+0000 and halves of surrogate pairs as escapes, numbers of many digits, and deep nesting. Whether the bytes are
UTF-8 is for others to say. No function reads past a line end, and each is told of one at the latest.
"""

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.eight_bytes import ONE, load, trailing_zeros
from tokenmill_core.compiled.kernel import at, kernel
from tokenmill_core.compiled.wide import WIDTH, string_stops

NO_VALUE, STRING, NULL, BOOLEAN, INTEGER, OTHER = range(6)
"""Kinds of values. `INTEGER`: its digits are the text of it, and it fits into 64 bits; `OTHER`: all else."""

QUOTE, BACKSLASH, COLON, COMMA, MINUS, NEWLINE = (ord(character) for character in '"\\:,-\n')
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY = (ord(character) for character in "{}[]")
SMALL_U = ord("u")
_ZERO, _DOT, _PLUS, _E = (ord(character) for character in "0.+e")

_MAX_DEPTH = 64
_MAX_NUMBER_BYTES = 64
_MAX_INTEGER_BYTES = 19
"""19 digits, or 18 and a sign, fit into 64 bits, whatever they are."""

_HEX = np.array([int(chr(byte), 16) if chr(byte) in "0123456789abcdefABCDEF" else -1 for byte in range(256)], np.int64)
_SHORT_ESCAPES = np.zeros(256, np.int64)
_SHORT_ESCAPES[np.frombuffer(rb'"\/bfnrt', np.uint8)] = np.frombuffer(b'"\\/\b\f\n\r\t', np.uint8)
_TRUE, _FALS, _NULL = (np.uint64(int.from_bytes(word, "little")) for word in (b"true", b"fals", b"null"))
_LOW_FOUR = np.uint64(0xFFFFFFFF)


@kernel
def skip_space(text: NDArray[np.uint8], i: int) -> int:
    """The first byte from `i` on that is no space within a line."""
    while at(text, i) == 0x20 or at(text, i) == 0x09 or at(text, i) == 0x0D:
        i += 1
    return i


@kernel
def skip_string(text: NDArray[np.uint8], i: int) -> tuple[int, bool]:
    """(byte after the quote that closes the string whose first character is at `i`, or -1; whether it has escapes)."""
    escaped = False
    while True:
        stops = string_stops(text, i)
        if stops == 0:
            i += WIDTH
            continue
        i += trailing_zeros(stops)
        if at(text, i) == QUOTE:
            return i + 1, escaped
        if at(text, i) != BACKSLASH:
            return -1, escaped
        escaped = True
        while at(text, i) == BACKSLASH:
            if at(text, i + 1) != SMALL_U:
                if short_escape(text, i) == 0:
                    return -1, escaped
                i += 2  # not the width that a call gives: the processor goes on before it has looked
                continue
            width, _ = long_escape(text, i)
            if width == 0:
                return -1, escaped
            i += width


@kernel
def read_escape(text: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """(bytes of the escape at `i`, its code point), in a string that was skipped before."""
    return long_escape(text, i) if at(text, i + 1) == SMALL_U else (2, short_escape(text, i))


@kernel
def short_escape(text: NDArray[np.uint8], i: int) -> int:
    """The code point of the escape of two bytes at `i`, or 0."""
    return at(_SHORT_ESCAPES, int(at(text, i + 1)))  # type: ignore[no-any-return]


@kernel
def long_escape(text: NDArray[np.uint8], i: int) -> tuple[int, int]:
    r"""(bytes of the escape `\u` at `i`, its code point); 0 bytes if it is none. A pair of surrogates is one escape."""
    code = _four_digits(text, i + 2)
    if code <= 0 or 0xDC00 <= code < 0xE000:
        return 0, 0
    if code < 0xD800 or code >= 0xE000:
        return 6, code
    if at(text, i + 6) != BACKSLASH or at(text, i + 7) != SMALL_U:
        return 0, 0
    low = _four_digits(text, i + 8)
    if low < 0xDC00 or low >= 0xE000:
        return 0, 0
    return 12, 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)


@kernel
def _four_digits(text: NDArray[np.uint8], i: int) -> int:
    """The value of four hexadecimal digits; negative if one of them is none."""
    # A margin lies behind the text, so that four bytes are there even where a line ends between them.
    a, b = at(_HEX, int(at(text, i))), at(_HEX, int(at(text, i + 1)))
    c, d = at(_HEX, int(at(text, i + 2))), at(_HEX, int(at(text, i + 3)))
    return a << 12 | b << 8 | c << 4 | d  # type: ignore[no-any-return]


@kernel
def _is_digit(text: NDArray[np.uint8], i: int) -> bool:
    return 0x30 <= int(at(text, i)) <= 0x39


@kernel
def _skip_digits(text: NDArray[np.uint8], i: int) -> int:
    while _is_digit(text, i):
        i += 1
    return i


@kernel
def _skip_number(text: NDArray[np.uint8], start: int) -> tuple[int, int]:
    integer = start + int(at(text, start) == MINUS)
    i = _skip_digits(text, integer)
    if i == integer or (at(text, integer) == _ZERO and i > integer + 1):
        return -1, NO_VALUE
    # -0 is an integer for one parser and a float for another.
    is_integer = i - start <= _MAX_INTEGER_BYTES and not (integer > start and at(text, integer) == _ZERO)
    if at(text, i) == _DOT:
        is_integer = False
        i = _skip_digits(text, i + 1)
        if not _is_digit(text, i - 1):
            return -1, NO_VALUE
    if at(text, i) | 0x20 == _E:
        is_integer = False
        i += 1 + int(at(text, i + 1) == MINUS or at(text, i + 1) == _PLUS)
        if not _is_digit(text, i):
            return -1, NO_VALUE
        i = _skip_digits(text, i)
    if i - start > _MAX_NUMBER_BYTES:
        return -1, NO_VALUE
    return i, INTEGER if is_integer else OTHER


@kernel
def _skip_scalar(text: NDArray[np.uint8], i: int) -> tuple[int, int]:
    first = at(text, i)
    if first == QUOTE:
        return skip_string(text, i + 1)[0], STRING
    if first == MINUS or _is_digit(text, i):
        return _skip_number(text, i)
    word = load(text, i) & _LOW_FOUR
    if word == _NULL:
        return i + 4, NULL
    if word == _TRUE:
        return i + 4, BOOLEAN
    if word == _FALS and at(text, i + 4) == _E:
        return i + 5, BOOLEAN
    return -1, NO_VALUE


@kernel
def skip_key(text: NDArray[np.uint8], i: int) -> int:
    """The first byte of the value whose key begins at `i`, or -1."""
    if at(text, i) != QUOTE:
        return -1
    i, _ = skip_string(text, i + 1)
    return i if i < 0 else skip_colon(text, i)


@kernel
def skip_colon(text: NDArray[np.uint8], i: int) -> int:
    """The first byte of the value whose key ends before `i`, or -1."""
    i = skip_space(text, i)
    return skip_space(text, i + 1) if at(text, i) == COLON else -1


@kernel
def skip_value(text: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """(byte after the value that begins at `i`, or -1; its kind)."""
    objects, depth = np.uint64(0), 0  # the lowest bit says whether the innermost of what is open is an object
    while True:
        if depth > 0 and objects & ONE != 0:
            i = skip_key(text, i)
            if i < 0:
                return -1, NO_VALUE
        is_object = at(text, i) == OPEN_OBJECT
        if is_object or at(text, i) == OPEN_ARRAY:
            if depth == _MAX_DEPTH:
                return -1, NO_VALUE
            objects, depth = objects << ONE | np.uint64(is_object), depth + 1
            i = skip_space(text, i + 1)
            if at(text, i) != _closing(objects):
                continue
        else:
            i, kind = _skip_scalar(text, i)
            if i < 0 or depth == 0:
                return i, kind
            i = skip_space(text, i)
        while at(text, i) == _closing(objects):
            objects, depth = objects >> ONE, depth - 1
            if depth == 0:
                return i + 1, OTHER
            i = skip_space(text, i + 1)
        if at(text, i) != COMMA:
            return -1, NO_VALUE
        i = skip_space(text, i + 1)


@kernel
def _closing(objects: np.uint64) -> int:
    return CLOSE_OBJECT if objects & ONE != 0 else CLOSE_ARRAY
