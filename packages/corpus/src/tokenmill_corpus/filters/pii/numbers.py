"""Phone and card numbers.

Phone numbers, 7 to 15 digits (the most E.164 allows), are taken where their form tells them from other numbers:

    international   +49 30 901820, +1 (415) 555-0132, +442079460958 (unseparated: ten digits or more)
    North America   (415) 555-0132, 415-555-0132, 1-415-555-0132, 415.555.0132
    France          01 23 45 67 89
    others          a leading 0 and the groups of Britain, Germany, Japan: 020 7946 0958, 030/9018200, 03-1234-5678
    after a word    any of 7 to 15 digits after "tel", "phone", "fax" and their like in the larger languages

Card numbers: lengths and first digits of the issuers (Visa, Mastercard, American Express, Discover, Diners, JCB,
UnionPay), the usual groups or none, and a right check digit (Luhn).
"""

import re

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_corpus.filters.pii.candidates import Span, digit_runs, scan, stretches

_SEPARATOR = rb"(?:[ .\-/]|\xc2\xa0|\xe2\x80[\x90-\x93\xaf])"
_BEFORE = rb"(?<![\w+.,:/\-])"
_AFTER = rb"(?![\w@:]|[.,\-/]\d)"
_ALONE_BEFORE = rb"(?<!\d )(?<![\w+.,:/\-])"
_ALONE_AFTER = rb"(?![\w@:]|[.,\-/ ]\d)"
_INTERNATIONAL = re.compile(
    rb"(?<![\w+])\+(?:" + _SEPARATOR + rb"{0,2}\(?\d{1,14}\)?){1,7}" + _AFTER,
)
_NATIONAL = [
    re.compile(pattern)
    for pattern in (
        rb"(?<![\w+])(?:1[ .\-]?)?\([2-9]\d\d\)[ .\-]?[2-9]\d\d[ .\-]\d{4}" + _AFTER,
        _BEFORE + rb"(?:1([.\-]))?[2-9]\d\d([.\-])[2-9]\d\d\2\d{4}" + _AFTER,
        _ALONE_BEFORE + rb"0[1-9](" + _SEPARATOR + rb")\d\d(?:\1\d\d){3}" + _ALONE_AFTER,
        _ALONE_BEFORE + rb"0[1-9]\d{3} \d{6}" + _ALONE_AFTER,
        _ALONE_BEFORE + rb"\(?0[1-9]\d{1,2}\)? \d{3,4} \d{4}" + _ALONE_AFTER,
        _ALONE_BEFORE + rb"\(?0[1-9]\d{1,3}\)?[/\-]\d{6,8}" + _ALONE_AFTER,
        _ALONE_BEFORE + rb"\(0[1-9]\d{1,3}\) \d{6,8}" + _ALONE_AFTER,
        _BEFORE + rb"0[1-9]\d{0,2}-\d{2,4}-\d{4}" + _AFTER,
    )
]
_ANY = re.compile(rb"(?<![\w+])\+?\(?\d(?:" + _SEPARATOR + rb"{0,2}[()]?\d){6,14}" + _AFTER)
_WORDS = re.compile(
    rb"(?i)(?:(?<![a-z])(?:tel|tele?phone|telefono?|t\xc3\xa9l(?:\xc3\xa9phone)?|phone|fax|mobile?|cell(?:ulare)?|handy|"
    rb"whatsapp|celular|portable)|\xd1\x82\xd0\xb5\xd0\xbb(?:\xd0\xb5\xd1\x84\xd0\xbe\xd0\xbd)?|"
    rb"\xe7\x94\xb5\xe8\xaf\x9d|\xe9\x9b\xbb\xe8\xa9\xb1|\xe6\x89\x8b\xe6\x9c\xba|\xec\xa0\x84\xed\x99\x94)"
    rb"[. ]{0,2}(?:(?:no|nr|number)[. ]{0,2})?(?:\xef\xbc\x9a|[:#])?[ ]{0,2}\Z"
)
_DATE = re.compile(rb"(?:\d{4}[./\-]\d\d?[./\-]\d\d?|\d\d?[./\-]\d\d?[./\-]\d{4})(?!\d)")
_DECIMAL = re.compile(rb"\+\d+\.\d+")
_COUNTING = re.compile(rb"(?:0\d\D+){4}0\d")
_CARD = re.compile(
    rb"(?<![\w.\-+])(?:\d{4}([ \-]?)\d{4}\1\d{4}\1\d{4}(?:\1\d{1,3})?|3[47]\d\d([ \-]?)\d{6}\2\d{5}|"
    rb"3[0689]\d\d([ \-]?)\d{6}\3\d{4}|4\d{12})(?![\w@]|[.\-]\d)"
)
_ISSUERS = re.compile(
    rb"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|"
    rb"(?:6011|64[4-9]\d|65\d\d|62\d\d|35(?:2[89]|[3-8]\d))\d{12,15}|3(?:0[0-5]|[689]\d)\d{11}"
)
_MIN_DIGITS, _MAX_DIGITS, _MIN_UNSEPARATED = 7, 15, 10
_MIN_CARD_DIGITS = 13


def find_phones(text: TextBuffers) -> list[Span]:
    """Where the phone numbers of a batch are."""
    found = []
    runs = scan(digit_runs, text, _MIN_DIGITS)
    for data, start, (low, high) in stretches(text, runs, 24, 4):
        found += [(start + first, start + last) for first, last in _phones(data, low, high)]
    return found


def find_cards(text: TextBuffers) -> list[Span]:
    """Where the card numbers of a batch are."""
    found = []
    runs = scan(digit_runs, text, _MIN_CARD_DIGITS)
    for data, start, (low, _) in stretches(text, runs, 2, 4):
        for match in _CARD.finditer(data, low):
            digits = _digits(match[0])
            if _ISSUERS.fullmatch(digits) and passes_luhn(digits):
                found.append((start + match.start(), start + match.end()))
    return found


def passes_luhn(digits: bytes) -> bool:
    """Whether the last of these ASCII digits is the check digit of the others."""
    values = [digit - 48 for digit in reversed(digits)]
    doubled = (2 * value - 9 * (value > 4) for value in values[1::2])
    return (sum(values[::2]) + sum(doubled)) % 10 == 0


def _phones(data: bytes, low: int, high: int) -> list[Span]:
    if data[low : low + 1] in (b"+", b"(") or b"+" in data[low:high]:
        found = [m.span() for m in _INTERNATIONAL.finditer(data, low) if _is_international(m[0])]
        if found:
            return found
    found = [m.span() for pattern in _NATIONAL for m in pattern.finditer(data, low) if _is_national(m[0])]
    if not found and _WORDS.search(data, 0, low):
        match = _ANY.match(data, low)
        if match and not _DATE.match(data, low):
            found = [match.span()]
    return found


def _is_international(written: bytes) -> bool:
    digits = _digits(written)
    separated = len(digits) + 1 < len(written)
    if _DECIMAL.fullmatch(written):
        return False
    return digits[:1] != b"0" and (8 if separated else _MIN_UNSEPARATED) <= len(digits) <= _MAX_DIGITS


def _is_national(written: bytes) -> bool:
    return 9 <= len(_digits(written)) <= 12 and not _COUNTING.fullmatch(written)


def _digits(written: bytes) -> bytes:
    return bytes(byte for byte in written if 48 <= byte <= 57)
