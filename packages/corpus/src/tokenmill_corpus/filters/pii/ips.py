"""IP addresses, versions 4 and 6.

Version 4: four numbers from 0 to 255 without leading zeros, neither part of a longer dotted number (1.3.6.1.4.1) nor
what is more likely a version or a heading: after a letter (`v1.2.3.4`), after `Name/`, after words such as "version" or
"section", before `-beta`, and where the first three numbers are below 10, unless "address", "host" and the like stand
before it or a port or a network's length after it (`4.1.7.1` is a heading; `//4.1.7.1` and `4.1.7.1:80` are not).
Version 6: what parses as one, with at least two groups given.

Public: what the IANA special-purpose registries do not set aside for private, local, shared or documentation use.
"""

import ipaddress
import re

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_corpus.filters.pii.candidates import Span, is_digit, is_hex, is_word, put, scan, stretches

_SET_ASIDE = [
    ipaddress.IPv4Network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
        *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        "224.0.0.0/3",
    )
]
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")
_SET_ASIDE_6 = [ipaddress.IPv6Network(network) for network in ("2001:db8::/32", "3fff::/20")]
_LOCAL_6 = [ipaddress.IPv6Network(network) for network in ("fe80::/10", "fc00::/7")]

_NOT_AN_ADDRESS_AFTER = re.compile(
    rb"(?i)(?:(?<![a-z])(?:v|ver|version|versions|release|rev|revision|build|firmware|section|sections|chapter|clause|"
    rb"article|figure|table|sec|oid|objectidentifier)[. :=(\"']*|\xc2\xa7 ?|[a-z]/)\Z"
)
_AN_ADDRESS_AFTER = re.compile(
    rb"(?i)(?:(?<![a-z])(?:ip|ipv4|address|addr|host|server|nameserver|dns|ping|gateway|inet)[^\n]{0,8}|[/@\[])\Z"
)
_AN_ADDRESS_BEFORE = re.compile(rb":\d{2,5}(?!\d)|/\d\d?(?!\d)")
_SMALL = 10
_IPV6 = re.compile(rb"[0-9A-Fa-f]{1,4}:[0-9A-Fa-f:]*(?:\d{1,3}(?:\.\d{1,3}){3})?")


def find_ips(text: TextBuffers, public_only: bool) -> list[Span]:
    """Where the IP addresses of a batch are."""
    found = []
    for data, start, (low, high) in stretches(text, scan(_dotted_quads, text), 24, 8):
        if not _reads_as_version(data, low, high) and not (public_only and _is_set_aside(data[low:high])):
            found.append((start + low, start + high))
    for data, start, (low, high) in stretches(text, scan(_colon_groups, text), 0, 0):
        match = _IPV6.match(data, low, high)
        if match and _is_ipv6(match[0], public_only):
            found.append((start + low, start + match.end()))
    return found


def _reads_as_version(data: bytes, low: int, high: int) -> bool:
    if _NOT_AN_ADDRESS_AFTER.search(data, 0, low):
        return True
    if _AN_ADDRESS_AFTER.search(data, 0, low) or _AN_ADDRESS_BEFORE.match(data, high):
        return False
    return all(int(part) < _SMALL for part in data[low:high].split(b".")[:3])


def _is_set_aside(dotted: bytes) -> bool:
    address = ipaddress.IPv4Address(dotted.decode())
    return any(address in network for network in _SET_ASIDE)


def _is_ipv6(written: bytes, public_only: bool) -> bool:
    try:
        address = ipaddress.IPv6Address(written.decode())
    except ipaddress.AddressValueError:
        return False
    if len([group for group in written.split(b":") if group]) < 2:
        return False
    public = address in _GLOBAL_6 and not any(address in network for network in _SET_ASIDE_6)
    return public or (not public_only and (address in _GLOBAL_6 or any(address in network for network in _LOCAL_6)))


@numba.njit(cache=True)
def _dotted_quads(data: NDArray[np.uint8], offsets: NDArray[np.int64], found: NDArray[np.int64]) -> int:
    """Four numbers from 0 to 255 with dots between them, and neither letters nor more numbers about them."""
    count = 0
    for d in range(len(offsets) - 1):
        first, last = offsets[d], offsets[d + 1]
        i = first
        while i < last:
            if not is_digit(data[i]):
                i += 1
                continue
            start = i
            while i < last and (is_digit(data[i]) or (data[i] == 46 and i + 1 < last and is_digit(data[i + 1]))):
                i += 1
            if 7 <= i - start <= 15 and _is_free(data, start, i, first, last) and _is_quad(data, start, i):
                count = put(found, count, start, i, first, last)
    return count


@numba.njit(cache=True)
def _is_free(data: NDArray[np.uint8], start: int, end: int, first: int, last: int) -> bool:
    if start > first and (is_word(data[start - 1]) or data[start - 1] == 46 or data[start - 1] == 45):
        return False
    if end < last and is_word(data[end]):
        return False
    return not (end + 1 < last and data[end] == 45 and is_word(data[end + 1]) and not is_digit(data[end + 1]))


@numba.njit(cache=True)
def _is_quad(data: NDArray[np.uint8], start: int, end: int) -> bool:
    parts, value, digits = 1, 0, 0
    for i in range(start, end):
        if data[i] == 46:
            parts, value, digits = parts + 1, 0, 0
            continue
        if digits > 0 and value == 0:
            return False
        value, digits = 10 * value + int(data[i]) - 48, digits + 1
        if value > 255:
            return False
    return parts == 4


@numba.njit(cache=True)
def _colon_groups(data: NDArray[np.uint8], offsets: NDArray[np.int64], found: NDArray[np.int64]) -> int:
    """Hexadecimal digits and colons, with a double colon or seven, and no letters or digits about them."""
    count = 0
    for d in range(len(offsets) - 1):
        first, last = offsets[d], offsets[d + 1]
        i = first
        while i < last:
            if data[i] != 58:
                i += 1
                continue
            start = i
            while start > first and is_hex(data[start - 1]) and i - start < 5:
                start -= 1
            colons, double = 0, False
            while i < last and (is_hex(data[i]) or data[i] == 58 or data[i] == 46):
                if data[i] == 58:
                    colons += 1
                    double |= data[i - 1] == 58 and i > start
                i += 1
            end = i
            while end > start and (data[end - 1] == 46 or (data[end - 1] == 58 and data[end - 2] != 58)):
                end -= 1
            bounded = (start == first or not is_word(data[start - 1])) and (i == last or not is_word(data[i]))
            if bounded and is_hex(data[start]) and (double or colons >= 7):
                count = put(found, count, start, end, first, last)
    return count
