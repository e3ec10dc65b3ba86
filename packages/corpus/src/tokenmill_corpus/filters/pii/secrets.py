"""Keys and tokens, as they get into code and configuration.

By their published shapes: private key blocks (PEM), JSON web tokens, and the keys of AWS, GitHub, GitLab, Slack,
Google, Stripe, OpenAI, Anthropic, Hugging Face, npm, PyPI and SendGrid. By their names: a quoted value of at least 16
characters, letters and digits mixed, of at least 3.5 bits a character, given to something called secret, token,
password, API key or the like.
"""

import math
import re
from collections import Counter

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_corpus.filters.pii.candidates import Span, is_digit, is_word, put, scan, stretches

_TOKENS = re.compile(
    rb"(?<![A-Za-z0-9_])(?:"
    rb"(?:AKIA|ASIA)[A-Z0-9]{16}"
    rb"|gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255}|glpat-[A-Za-z0-9_\-]{20,}"
    rb"|xox[abeoprs]-[A-Za-z0-9\-]{10,}"
    rb"|AIza[A-Za-z0-9_\-]{35}|GOCSPX-[A-Za-z0-9_\-]{28}"
    rb"|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{24,}"
    rb"|sk-(?:ant-|proj-)?[A-Za-z0-9_\-]{32,}"
    rb"|hf_[A-Za-z]{34}|npm_[A-Za-z0-9]{36}|pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_\-]{50,}"
    rb"|SG\.[A-Za-z0-9_\-]{22}\.[A-Za-z0-9_\-]{43}"
    rb"|eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{16,}"
    rb")(?![A-Za-z0-9_])"
)
_NAMED = re.compile(
    rb"(?i)(?:secret|token|passw(?:or)?d|passwd|api_?-?key|access_?-?key|private_?-?key|auth_?-?key|credential)s?"
    rb"[A-Za-z0-9_\-]{0,24}[\"']?\]?\s{0,4}(?::=|=>|[:=])\s{0,4}[bru]?[\"']\Z"
)
_BEGIN = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(rb"-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_BODY = re.compile(rb"(?:[A-Za-z0-9+/=:,.\- \t\r\n]|\\[nr])*")
_MAX_TOKEN, _MIN_KEY, _MAX_KEY_BLOCK = 1024, 32, 16 << 10
_MIN_RUN, _MIN_ENTROPY = 16, 3.5


def _beginnings() -> NDArray[np.uint32]:
    """(3, 256): a bit for each of the beginnings with this byte in this place; three bytes that share a bit are one."""
    beginnings = (
        *("AKI", "ASI", "ghp", "gho", "ghu", "ghs", "ghr", "git", "glp", "xox", "AIz", "GOC"),
        *("sk_", "rk_", "sk-", "whs", "hf_", "npm", "pyp", "SG.", "eyJ"),
    )
    places = np.zeros((3, 256), np.uint32)
    for bit, beginning in enumerate(beginnings):
        for place, byte in enumerate(beginning.encode()):
            places[place, byte] |= np.uint32(1 << bit)
    return places


_PLACES = _beginnings()


def find_secrets(text: TextBuffers) -> list[Span]:
    """Where the keys and tokens of a batch are."""
    found: list[Span] = []
    for data, start, (low, high) in stretches(text, scan(_token_runs, text), 64, _MAX_TOKEN):
        token = _TOKENS.match(data, low)
        if token:
            found.append((start + low, start + token.end()))
        elif _NAMED.search(data, 0, low) and data[high : high + 1] in (b'"', b"'") and _is_random(data[low:high]):
            found.append((start + low, start + high))
    for data, start, _ in stretches(text, scan(_key_blocks, text), 0, _MAX_KEY_BLOCK):
        begin = _BEGIN.match(data)
        if begin and (end := _end_of_block(data, begin.end())) >= begin.end() + _MIN_KEY:
            found.append((start, start + end))
    return found


def _is_random(value: bytes) -> bool:
    if not (re.search(rb"[0-9]", value) and re.search(rb"[A-Za-z]", value)):
        return False
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares) >= _MIN_ENTROPY


def _end_of_block(data: bytes, at: int) -> int:
    """The end of a key block, or of what looks like its body where the closing line is not there."""
    end = _END.search(data, at)
    body = _BODY.match(data, at)
    assert body is not None
    return end.end() if end and body.end() >= end.start() else body.end()


@numba.njit(cache=True)
def _token_runs(data: NDArray[np.uint8], offsets: NDArray[np.int64], found: NDArray[np.int64]) -> int:
    """Runs of what tokens are made of that begin as a known one does, or after a quotation mark and hold a digit."""
    count = 0
    for d in range(len(offsets) - 1):
        first, last = offsets[d], offsets[d + 1]
        inside = False
        for i in range(first, last - _MIN_RUN + 1):
            begins, inside = not inside, is_word(data[i])
            if not (begins and inside):
                continue
            quoted = i > first and (data[i - 1] == 34 or data[i - 1] == 39)
            known = (_PLACES[0, data[i]] & _PLACES[1, data[i + 1]] & _PLACES[2, data[i + 2]]) != 0
            if quoted or known:
                end, digits = _end_of_run(data, i, last)
                if end - i >= _MIN_RUN and (known or digits):
                    count = put(found, count, i, end, first, last)
    return count


@numba.njit(cache=True)
def _end_of_run(data: NDArray[np.uint8], i: int, last: int) -> tuple[int, int]:
    """Where the run ends, and how many digits it has."""
    digits = 0
    while i < last and (is_word(data[i]) or data[i] == 43 or 45 <= data[i] <= 47 or data[i] == 61 or data[i] == 126):
        digits += is_digit(data[i])
        i += 1
    return i, digits


@numba.njit(cache=True)
def _key_blocks(data: NDArray[np.uint8], offsets: NDArray[np.int64], found: NDArray[np.int64]) -> int:
    """Where `-----BEGIN` stands."""
    count = 0
    for d in range(len(offsets) - 1):
        first, last = offsets[d], offsets[d + 1]
        i = first
        while i + 10 <= last:
            if data[i + 4] != 45:
                i += 5
            elif data[i] == 45 and data[i + 5] == 66 and data[i + 6] == 69 and data[i + 7] == 71 and data[i + 1] == 45:
                count = put(found, count, i, i + 10, first, last)
                i += 10
            else:
                i += 1
    return count
