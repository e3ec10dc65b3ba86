"""Bytes that are no UTF-8 are found where Python finds them."""

import numba
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tokenmill_core.compiled.utf8_errors import find_utf8_error
from tokenmill_core.compiled.wide import MARGIN


@numba.njit
def find_error(text: NDArray[np.uint8], first: int, last: int) -> int:
    return find_utf8_error(text, first, last)


def utf8_error(content: bytes) -> int | None:
    data = b"\n" * MARGIN + content + b"\n" * MARGIN
    stop = MARGIN + len(content) + 1
    found = find_error(np.frombuffer(data, np.uint8), MARGIN, stop)
    return None if found >= stop else found - MARGIN


def python_error(content: bytes) -> UnicodeDecodeError | None:
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return error
    return None


def assert_error_is_found(content: bytes) -> None:
    error, found = python_error(content), utf8_error(content)
    assert (error is None) == (found is None)
    assert error is None or error.start <= found <= error.end


def test_every_character_is_utf8_and_no_other_sequence_of_bytes():
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    assert utf8_error(everything.encode()) is None
    seconds = (0x00, 0x22, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xE0, 0xFF)
    for first in range(0x80, 0x100):
        for second in seconds:
            for rest in (b"", b"\x80", b"\x80\x80", b"\xbf\xbf\xbf", b"a"):
                for before in (b"", b"a" * 29, b"a" * 31):
                    assert_error_is_found(before + bytes([first, second]) + rest)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(max_size=20).map(str.encode) | st.binary(max_size=3), max_size=10))
def test_errors_in_mixed_bytes_are_found(parts):
    assert_error_is_found(b"".join(parts))
