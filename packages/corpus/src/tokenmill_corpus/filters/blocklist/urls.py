"""What of a URL is on a list: all of it, its domain or one above that, words in it, or stretches of it."""

from functools import lru_cache

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers, column_buffers
from tokenmill_corpus.filters.blocklist.lists import ascii_domain, read_domains, read_entries
from tokenmill_corpus.filters.blocklist.sets import SEED, contains, key_of, make_set, step

MAX_DISTINCT = 64
"""Different listed words of one URL that are told apart."""


def buffers_of(strings: list[str]) -> TextBuffers:
    """Strings as one buffer."""
    return column_buffers(pa.array(strings, pa.large_string()))


@lru_cache(maxsize=8)
def url_set(path: str) -> NDArray[np.uint64]:
    """The URLs of a list, as written."""
    return make_set(_whole_keys(*_arrays(buffers_of(list(read_entries(path))))))


@lru_cache(maxsize=8)
def domain_set(path: str) -> NDArray[np.uint64]:
    """The domains of a list."""
    return make_set(_whole_keys(*_arrays(buffers_of(list(read_domains(path))))))


@lru_cache(maxsize=8)
def squeezed_set(path: str) -> tuple[NDArray[np.uint64], int]:
    """The entries of a list in lower case, their ASCII letters and digits alone; and the length of the longest."""
    entries = [squeezed for entry in read_entries(path) if (squeezed := "".join(filter(_is_plain, entry.lower())))]
    return make_set(_whole_keys(*_arrays(buffers_of(entries)))), max(map(len, entries), default=0)


def _is_plain(character: str) -> bool:
    return character.isascii() and character.isalnum()


def on_url_list(urls: TextBuffers, listed: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which URLs are on a list, exactly as they are."""
    return _on_list(_whole_keys(*_arrays(urls)), listed)


def on_domain_list(urls: TextBuffers, listed: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which URLs are of a listed domain or of one below it. A host beyond ASCII is compared as IDNA."""
    data, offsets = _arrays(urls)
    hosts = _hosts(data, offsets)
    found = _under_listed(data, hosts, listed)
    for d in np.flatnonzero(hosts[:, 2]).tolist():
        host = ascii_domain(data[hosts[d, 0] : hosts[d, 1]].tobytes().decode().strip("."))
        if host is not None:
            ascii_host = np.frombuffer(host.encode(), np.uint8)
            found[d] = _under_listed(ascii_host, np.array([[0, len(ascii_host), 0]]), listed)[0]
    return found


def words_on_list(urls: TextBuffers, listed: NDArray[np.uint64]) -> NDArray[np.int64]:
    """How many different listed words, runs of ASCII letters and digits, each URL has; counted up to 64."""
    return _count_words(*_arrays(urls), listed)


def parts_on_list(urls: TextBuffers, listed: NDArray[np.uint64], longest: int) -> NDArray[np.bool_]:
    """Which URLs hold a listed entry when only their ASCII letters and digits are read, through word ends too."""
    return _has_part(*_arrays(urls), listed, longest)


def _arrays(text: TextBuffers) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    return text.data, np.ascontiguousarray(text.offsets)


@numba.njit(cache=True)
def _whole_keys(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    keys = np.empty(len(offsets) - 1, np.uint64)
    for d in range(len(keys)):
        h = SEED
        for i in range(offsets[d], offsets[d + 1]):
            h = step(h, data[i])
        keys[d] = key_of(h)
    return keys


@numba.njit(cache=True)
def _on_list(keys: NDArray[np.uint64], listed: NDArray[np.uint64]) -> NDArray[np.bool_]:
    found = np.zeros(len(keys), np.bool_)
    for d in range(len(keys)):
        found[d] = contains(listed, keys[d])
    return found


@numba.njit(cache=True)
def _hosts(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """(start, end, whether it is beyond ASCII) of each URL's host: after `//` and `user@`, before port and path."""
    hosts = np.zeros((len(offsets) - 1, 3), np.int64)
    for d in range(len(hosts)):
        first, last = offsets[d], offsets[d + 1]
        start = first
        for i in range(first, last - 1):
            if data[i] == 47:
                start = i + 2 if data[i + 1] == 47 else start
                break
        end = start
        while end < last and data[end] != 47 and data[end] != 63 and data[end] != 35 and data[end] != 92:
            end += 1
        for i in range(start, end):
            if data[i] == 64:
                start = i + 1
        for i in range(start, end):
            if data[i] == 58 and data[start] != 91:
                end = i
                break
        while end > start and data[end - 1] == 46:
            end -= 1
        beyond = 0
        for i in range(start, end):
            beyond |= data[i] >= 128
        hosts[d, 0], hosts[d, 1], hosts[d, 2] = start, end, beyond
    return hosts


@numba.njit(cache=True)
def _under_listed(data: NDArray[np.uint8], hosts: NDArray[np.int64], listed: NDArray[np.uint64]) -> NDArray[np.bool_]:
    found = np.zeros(len(hosts), np.bool_)
    for d in range(len(hosts)):
        start, end = hosts[d, 0], hosts[d, 1]
        for at in range(start, end):
            if at > start and data[at - 1] != 46:
                continue
            h = SEED
            for i in range(at, end):
                h = step(h, _lower(data[i]))
            if contains(listed, key_of(h)):
                found[d] = True
                break
    return found


@numba.njit(cache=True)
def _count_words(data: NDArray[np.uint8], offsets: NDArray[np.int64], listed: NDArray[np.uint64]) -> NDArray[np.int64]:
    counts = np.zeros(len(offsets) - 1, np.int64)
    seen = np.empty(MAX_DISTINCT, np.uint64)
    for d in range(len(counts)):
        i, last, distinct = offsets[d], offsets[d + 1], 0
        while i < last:
            h, start = SEED, i
            while i < last and _is_alphanumeric(data[i]):
                h = step(h, _lower(data[i]))
                i += 1
            if i > start and distinct < MAX_DISTINCT and contains(listed, key_of(h)):
                new = True
                for k in range(distinct):
                    new &= seen[k] != h
                if new:
                    seen[distinct] = h
                    distinct += 1
            i += 1
        counts[d] = distinct
    return counts


@numba.njit(cache=True)
def _has_part(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], listed: NDArray[np.uint64], longest: int
) -> NDArray[np.bool_]:
    found = np.zeros(len(offsets) - 1, np.bool_)
    for d in range(len(found)):
        for start in range(offsets[d], offsets[d + 1]):
            if found[d] or not _is_alphanumeric(data[start]):
                continue
            h, length, i = SEED, 0, start
            while i < offsets[d + 1] and length < longest:
                if _is_alphanumeric(data[i]):
                    h = step(h, _lower(data[i]))
                    length += 1
                    if contains(listed, key_of(h)):
                        found[d] = True
                        break
                i += 1
    return found


@numba.njit(cache=True)
def _is_alphanumeric(byte: int) -> bool:
    return 48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122


@numba.njit(cache=True)
def _lower(byte: int) -> int:
    return byte + 32 if 65 <= byte <= 90 else byte
