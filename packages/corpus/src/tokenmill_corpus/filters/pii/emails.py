"""E-mail addresses.

`local@domain.tld`, with letters, digits and `._%+-` before the `@` (the 64 bytes a mailbox may have), labels of
letters, digits and inner hyphens after it, and a top level of letters; Latin letters with diacritics are letters.
Not taken: `user@host`, `package@1.2.3`, `icon@2x.png`, and the `git@host:` of a repository.
"""

import re

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_corpus.filters.pii.candidates import Span, is_word, put, scan, stretches

_LATIN = rb"[\xc3-\xc9][\x80-\xbf]"
_LOCAL = re.compile(rb"(?:[A-Za-z0-9_%+]|" + _LATIN + rb")(?:[A-Za-z0-9._%+\-]|" + _LATIN + rb"){0,63}\Z")
_INNER = rb"(?:[A-Za-z0-9\-]|" + _LATIN + rb")*"
_LABEL = rb"(?:[A-Za-z0-9]|" + _LATIN + rb")(?:" + _INNER + rb"(?:[A-Za-z0-9]|" + _LATIN + rb"))?"
_DOMAIN = re.compile(
    rb"(?:" + _LABEL + rb"\.){1,8}([A-Za-z]{2,24}|xn--[A-Za-z0-9\-]{2,59})(?![A-Za-z0-9_@\xc3-\xc9]|-[A-Za-z0-9])"
)
_FILE_TYPES = frozenset(
    {b"png", b"jpg", b"jpeg", b"gif", b"svg", b"webp", b"avif", b"ico", b"css", b"js", b"mjs", b"json"}
)
_MAX_LOCAL, _MAX_DOMAIN = 64, 254


def find_emails(text: TextBuffers) -> list[Span]:
    """Where the e-mail addresses of a batch are."""
    found = []
    for data, start, (at, _) in stretches(text, scan(_at_signs, text), _MAX_LOCAL, _MAX_DOMAIN):
        local = _LOCAL.search(data, 0, at)
        domain = _DOMAIN.match(data, at + 1)
        if local is None or domain is None or domain[1].lower() in _FILE_TYPES:
            continue
        if local[0] == b"git" and data[domain.end() : domain.end() + 1] == b":":
            continue
        found.append((start + local.start(), start + domain.end()))
    return found


@numba.njit(cache=True)
def _at_signs(data: NDArray[np.uint8], offsets: NDArray[np.int64], found: NDArray[np.int64]) -> int:
    """Each `@` between what may be a mailbox and what may be a host."""
    count = 0
    for d in range(len(offsets) - 1):
        first, last = offsets[d], offsets[d + 1]
        for i in range(first + 1, last - 3):
            if data[i] != 64:
                continue
            before, after = data[i - 1], data[i + 1]
            mailbox = is_word(before) or before in (37, 43, 45, 46) or 0x80 <= before < 0xC0
            if mailbox and (is_word(after) or 0xC3 <= after <= 0xC9):
                count = put(found, count, i, i + 1, first, last)
    return count
