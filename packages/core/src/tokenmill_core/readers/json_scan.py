"""Many lines of JSON at once, compiled: where the values of some fields stand, and these as Arrow strings.

    block of lines ─▶ one object each, the fields wanted as strings: spans in the block ─▶ columns
        └─ any other line: odd, for others to look at

What is read here is what the parser of single lines reads; in doubt, a line is odd.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenmill_core.compiled.eight_bytes import copy, count_byte, find_byte, trailing_zeros
from tokenmill_core.compiled.kernel import at, kernel
from tokenmill_core.compiled.utf8 import decode, is_space
from tokenmill_core.compiled.utf8_errors import find_utf8_error
from tokenmill_core.compiled.wide import MARGIN, WIDTH, backslashes
from tokenmill_core.readers import json_grammar as grammar
from tokenmill_core.readers.line_blocks import LineBlock

_TEXT, _ID = 0, 1


@dataclass(frozen=True)
class Scan:
    """What stands on the lines of a block; all are counted from 0."""

    plain: NDArray[np.int64]
    """The lines that hold a document, as (line, bytes of it without its end)."""
    odd: NDArray[np.int64]
    """The other lines, as (line, where it begins in the block, where it ends)."""
    columns: list[pa.Array]
    """For each field the values on the plain lines: large_string for the first, string for the others."""


def scan(block: LineBlock, names: Sequence[str]) -> Scan:
    """The fields `names` of the objects of a block: the text, the id, and those to carry. No two are the same."""
    assert min(block.start, len(block.data) - block.stop) >= MARGIN
    keys = [name.encode("utf-8", "surrogatepass") for name in names]  # what is no UTF-8 is on no plain line
    ends = np.cumsum([len(key) for key in keys])
    data = np.frombuffer(block.data, np.uint8)
    plain, odd, spans = _scan(data, block.start, block.stop, np.frombuffer(b"".join(keys) + b" ", np.uint8), ends)
    return Scan(plain, odd, [_column(data, spans[field], large=field == _TEXT) for field in range(len(names))])


@numba.njit(cache=True)
def _scan(
    text: NDArray[np.uint8],
    first: int,
    last: int,
    keys: NDArray[np.uint8],
    key_ends: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(plain lines, odd lines, spans in the text by field and plain line; -1 where the value is null)."""
    num_lines = count_byte(text, first, last, grammar.NEWLINE)
    plain, odd = np.empty((num_lines, 2), np.int64), np.empty((num_lines, 3), np.int64)
    spans = np.empty((len(key_ends), num_lines, 2), np.int64)
    kinds = np.empty(len(key_ends), np.int64)
    num_plain = num_odd = np.int64(0)  # for a literal 0, what it is handed to would be compiled once more
    error = find_utf8_error(text, first, last)
    for line in range(num_lines):
        end = _scan_line(text, first, keys, key_ends, kinds, spans, num_plain)
        is_plain = end >= 0 and end < error and _is_document(text, kinds, spans, num_plain)
        if end < 0:
            end = find_byte(text, first, last, grammar.NEWLINE)
        if error <= end:
            error = find_utf8_error(text, end + 1, last)
        if is_plain:
            plain[num_plain, 0] = line
            plain[num_plain, 1] = end - first - int(text[end - 1] == 0x0D)
            num_plain += 1
        else:
            odd[num_odd, 0] = line
            odd[num_odd, 1] = first
            odd[num_odd, 2] = end
            num_odd += 1
        first = end + 1
    return plain[:num_plain].copy(), odd[:num_odd].copy(), spans[:, :num_plain].copy()


@kernel
def _scan_line(
    text: NDArray[np.uint8],
    i: int,
    keys: NDArray[np.uint8],
    key_ends: NDArray[np.int64],
    kinds: NDArray[np.int64],
    spans: NDArray[np.int64],
    n: np.int64,
) -> int:
    """Fill in kind and span of each field of the object on the line at `i`; the end of the line, or -1 if it is odd."""
    for field in range(len(key_ends)):
        kinds[field] = grammar.NULL
        spans[field, n] = -1
    i = grammar.skip_space(text, i)
    if at(text, i) != grammar.OPEN_OBJECT:
        return -1
    separator = grammar.OPEN_OBJECT
    while at(text, i) == separator:
        start = grammar.skip_space(text, i + 1) + 1
        if at(text, start - 1) != grammar.QUOTE:
            return -1
        end, escaped = grammar.skip_string(text, start)
        if end < 0 or escaped:
            return -1
        i = grammar.skip_colon(text, end)
        if i < 0:
            return -1
        stop, kind = grammar.skip_value(text, i)
        if stop < 0:
            return -1
        field = _field_of(text, start, end - 1, keys, key_ends)
        if field >= 0:  # where a key comes twice, the last one counts
            kinds[field] = kind
            quote = int(kind == grammar.STRING)
            spans[field, n, 0] = -1 if kind == grammar.NULL else i + quote
            spans[field, n, 1] = -1 if kind == grammar.NULL else stop - quote
        i = grammar.skip_space(text, stop)
        separator = grammar.COMMA
    if at(text, i) != grammar.CLOSE_OBJECT:
        return -1
    i = grammar.skip_space(text, i + 1)
    return i if at(text, i) == grammar.NEWLINE else -1


@kernel
def _field_of(text: NDArray[np.uint8], start: int, stop: int, keys: NDArray[np.uint8], ends: NDArray[np.int64]) -> int:
    """Which field's key `text[start:stop]` is; -1: none's."""
    begin = 0
    for field in range(len(ends)):
        end = at(ends, field)
        if end - begin == stop - start:
            k = 0
            while k < stop - start and at(text, start + k) == at(keys, begin + k):
                k += 1
            if k == stop - start:
                return field
        begin = end
    return -1


@kernel
def _is_document(text: NDArray[np.uint8], kinds: NDArray[np.int64], spans: NDArray[np.int64], n: np.int64) -> bool:
    """Whether the text is one, and the other values are, or are written like, the strings that stand for them."""
    for field in range(1, len(kinds)):
        if kinds[field] == grammar.OTHER or (field == _ID and kinds[field] == grammar.BOOLEAN):
            return False
    return kinds[_TEXT] == grammar.STRING and not _is_blank(text, spans[_TEXT, n, 0], spans[_TEXT, n, 1])


@kernel
def _is_blank(text: NDArray[np.uint8], i: int, stop: int) -> bool:
    """Whether the string `text[i:stop]` is empty, or white space alone."""
    while i < stop:
        if at(text, i) == grammar.BACKSLASH:
            width, code = grammar.read_escape(text, i)
        else:
            code, width = decode(text, i)
        if not is_space(code):
            return False
        i += width
    return True


def _column(data: NDArray[np.uint8], spans: NDArray[np.int64], *, large: bool) -> pa.Array:
    strings, offsets, num_null = _strings(data, spans)
    valid = pa.py_buffer(np.packbits(spans[:, 0] >= 0, bitorder="little")) if num_null else None
    kind, offset_type = (pa.large_string(), np.int64) if large else (pa.string(), np.int32)
    buffers = [valid, pa.py_buffer(offsets.astype(offset_type, copy=False)), pa.py_buffer(strings)]
    return pa.Array.from_buffers(kind, len(spans), buffers, num_null)


@numba.njit(cache=True)
def _strings(text: NDArray[np.uint8], spans: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64], int]:
    """(the strings one after the other, where each ends, how many are null): what spans hold, escapes resolved."""
    num_bytes = num_null = 0
    for n in range(len(spans)):
        num_bytes += spans[n, 1] - spans[n, 0]
        num_null += spans[n, 0] < 0
    out = np.empty(num_bytes + WIDTH, np.uint8)  # the last vector is written whole
    offsets = np.zeros(len(spans) + 1, np.int64)
    for n in range(len(spans)):
        offsets[n + 1] = _unescape(text, spans[n, 0], spans[n, 1], out, offsets[n])
    return out[: offsets[-1]], offsets, num_null


@kernel
def _unescape(text: NDArray[np.uint8], i: int, stop: int, out: NDArray[np.uint8], o: int) -> int:
    """Write the string `text[i:stop]` to byte `o` of `out`; where it ends there."""
    while i < stop:
        copy(text, i, i + WIDTH, out, o)
        num_plain = min(stop - i, WIDTH, trailing_zeros(backslashes(text, i)))
        i += num_plain
        o += num_plain
        while i < stop and at(text, i) == grammar.BACKSLASH:
            if at(text, i + 1) != grammar.SMALL_U:
                out[o] = grammar.short_escape(text, i)
                i, o = i + 2, o + 1
                continue
            width, code = grammar.long_escape(text, i)
            i, o = i + width, _encode(code, out, o)
    return o


@kernel
def _encode(code: int, out: NDArray[np.uint8], o: int) -> int:
    """Write a character as UTF-8 to byte `o` of `out`; where it ends there."""
    if code < 0x80:
        out[o] = code
        return o + 1
    if code < 0x800:
        out[o] = 0xC0 | code >> 6
    elif code < 0x10000:
        out[o] = 0xE0 | code >> 12
    else:
        out[o] = 0xF0 | code >> 18
    num_following = 1 + int(code >= 0x800) + int(code >= 0x10000)
    for k in range(num_following):
        out[o + 1 + k] = 0x80 | code >> 6 * (num_following - 1 - k) & 0x3F
    return o + 1 + num_following
