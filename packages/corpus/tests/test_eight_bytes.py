"""Bytes eight at a time, against Python's own search, and hashes that depend on nothing but the bytes."""

import string

import numba
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tokenmill_core.compiled.eight_bytes import alphanumeric_run, copy, count_byte, find_byte
from tokenmill_core.compiled.hashing import hash_bytes
from tokenmill_corpus.lines import count_characters

ALPHANUMERIC = (string.ascii_letters + string.digits).encode()
NEAR_LIMITS = st.sampled_from(list(b"/09:@AZ[`az{\x00\x01\x7f\x80\xff\n. "))


@settings(max_examples=300, deadline=None)
@given(st.lists(NEAR_LIMITS, max_size=40).map(bytes), st.integers(0, 40), st.integers(0, 40), NEAR_LIMITS)
def test_bytes_are_found_and_counted_as_python_does(text: bytes, first: int, last: int, byte: int) -> None:
    last = min(last, len(text))
    first = min(first, last)
    found = text.find(bytes([byte]), first, last)
    assert find_byte(np.frombuffer(text, np.uint8), first, last, byte) == (last if found < 0 else found)
    assert count_byte(np.frombuffer(text, np.uint8), first, last, byte) == text.count(bytes([byte]), first, last)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=20), st.text(max_size=40), st.text(max_size=20))
def test_characters_are_counted_inside_a_text(before: str, text: str, after: str) -> None:
    first, last = len(before.encode()), len((before + text).encode())
    assert count_characters(np.frombuffer((before + text + after).encode(), np.uint8), first, last) == len(text)


@numba.njit(cache=True)
def copied(text: NDArray[np.uint8], first: int, last: int, start: int) -> NDArray[np.uint8]:
    out = np.zeros(50, np.uint8)
    copy(text, first, last, out, start)
    return out


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=40, max_size=40), st.integers(0, 40), st.integers(0, 40), st.integers(0, 10))
def test_a_copy_has_the_bytes_asked_for_and_no_others(text: bytes, first: int, last: int, start: int) -> None:
    expected = (bytes(start) + text[first:last]).ljust(50, b"\0")
    assert bytes(copied(np.frombuffer(text, np.uint8), first, max(first, last), start)) == expected


@settings(max_examples=500, deadline=None)
@given(st.lists(NEAR_LIMITS | st.integers(0, 255), min_size=8, max_size=8).map(bytes))
def test_a_run_of_letters_and_digits_ends_at_the_first_other_byte(eight: bytes) -> None:
    length = next((i for i, byte in enumerate(eight) if byte not in ALPHANUMERIC), 8)
    expected = (length, any(byte in string.ascii_letters.encode() for byte in eight[:length]))
    assert alphanumeric_run(np.uint64(int.from_bytes(eight, "little"))) == expected


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=30), st.binary(max_size=9), st.binary(max_size=9))
def test_a_hash_depends_on_the_bytes_alone(key: bytes, before: bytes, after: bytes) -> None:
    alone = hash_bytes(np.frombuffer(key, np.uint8), 0, len(key))
    inside = np.frombuffer(before + key + after, np.uint8)
    assert hash_bytes(inside, len(before), len(before) + len(key)) == alone != 0


def test_hashes_of_many_short_keys_differ() -> None:
    keys = [str(i).encode() for i in range(200_000)] + [bytes(n) for n in range(1, 100)]
    text = np.frombuffer(b"".join(keys), np.uint8)
    ends = np.cumsum([len(key) for key in keys]).tolist()
    assert len({hash_bytes(text, end - len(key), end) for key, end in zip(keys, ends, strict=True)}) == len(keys)
