"""Normalising: mojibake, newlines, control characters and the Unicode form, each off unless asked for.

In this order:

    mojibake     UTF-8 that was once read as another encoding ("cafÃ©") is put right, line by line (`ftfy`)
    newlines     CR LF, CR, VT, FF, NEL (U+0085), U+2028 and U+2029 become "\n"
    controls     the control characters C0, DEL and C1 go, but for white space: tab, and the newlines above
    unicode      NFC

A document that needs nothing is only looked at: one pass over its bytes tells which steps could change it.
"""

import re
import unicodedata
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_core.compiled.utf8 import decode
from tokenmill_core.errors import ConfigError
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Edit, Family, Outcome


class UnicodeForm(StrEnum):
    """Unicode normalisation forms that lose nothing."""

    NONE = "none"
    NFC = "nfc"


class Newlines(StrEnum):
    """Which character ends a line."""

    KEEP = "keep"
    LF = "lf"


class Normalise(Family):
    """Bring texts into one form."""

    edits: ClassVar[bool] = True

    mojibake: bool = False
    """Repair text that was decoded with the wrong encoding; needs the extra `normalise`."""
    newlines: Newlines = Newlines.KEEP
    """`lf`: every kind of line break becomes a line feed; `keep`."""
    remove_controls: bool = False
    """Remove control characters other than white space."""
    unicode_form: UnicodeForm = UnicodeForm.NONE
    """`nfc`: composed characters; `none`."""

    def apply(self, documents: Documents) -> Outcome:
        """The edit: bytes and number of repairs by step."""
        old = documents.text
        inert = _inert_characters() if self.unicode_form is UnicodeForm.NFC else np.empty(0, np.bool_)
        needs = _needs(old.data, np.ascontiguousarray(old.offsets), inert)
        text, removed, count = old, {}, {}
        for what, flag, step in self._steps():
            new, times = step(text, np.flatnonzero(needs & flag))
            removed[what], count[what] = text.num_bytes - new.num_bytes, times
            if what == "mojibake" and new is not text:
                # What was repaired may hold anything that the steps to come are for.
                needs = _needs(new.data, np.ascontiguousarray(new.offsets), inert)
            text = new
        return Outcome() if text is old else Outcome(edit=Edit(text=text, removed=removed, count=count))

    def distributions(self) -> tuple[str, ...]:
        """ftfy, where it is used."""
        return ("ftfy",) if self.mojibake else ()

    def check(self) -> None:
        """`ftfy` is there if it is to be used."""
        if self.mojibake:
            _mojibake_repair()

    def _steps(self) -> list[tuple[str, int, "Step"]]:
        lf, no_controls = self.newlines is Newlines.LF, self.remove_controls
        steps: list[tuple[str, int, Step]] = []
        if self.mojibake:
            steps.append(("mojibake", _NON_ASCII, _by_document(_mojibake_repair())))
        if lf:
            steps.append(("newlines", _NEWLINES, _by_kernel(newlines=True)))
        if no_controls:
            steps.append(("controls", _CONTROLS, _by_kernel(newlines=False)))
        if self.unicode_form is UnicodeForm.NFC:
            steps.append(("unicode_form", _NOT_NFC, _by_document(_compose)))
        return steps


Step = Callable[[TextBuffers, NDArray[np.int64]], tuple[TextBuffers, NDArray[np.int64]]]
"""(texts, numbers of those that may need it) ─▶ (texts, repairs of each). The same texts, itself, where none did."""

_NON_ASCII, _NEWLINES, _CONTROLS, _NOT_NFC = 1, 2, 4, 8


@numba.njit(cache=True)
def _needs(data: NDArray[np.uint8], offsets: NDArray[np.int64], inert: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Which steps may change each document; `_NOT_NFC` where a character is not `inert`, a table that may be empty."""
    needs = np.zeros(len(offsets) - 1, np.uint8)
    for d in range(len(needs)):
        text = data[offsets[d] : offsets[d + 1]]
        high, low = np.uint8(0), np.uint8(0)
        for byte in text:
            high |= byte
            low |= np.uint8(byte < 32 and byte != 10 and byte != 9) | np.uint8(byte == 127)
        if low:
            needs[d] |= _low_needs(text)
        if high >= 128:
            needs[d] |= np.uint8(_NON_ASCII) | _high_needs(text, inert)
    return needs


@numba.njit(cache=True)
def _low_needs(text: NDArray[np.uint8]) -> np.uint8:
    needs = np.uint8(0)
    for byte in text:
        if 11 <= byte <= 13:
            needs |= np.uint8(_NEWLINES)
        elif (byte < 32 and byte != 10 and byte != 9) or byte == 127:
            needs |= np.uint8(_CONTROLS)
    return needs


@numba.njit(cache=True)
def _high_needs(text: NDArray[np.uint8], inert: NDArray[np.bool_]) -> np.uint8:
    needs, i = np.uint8(0), 0
    while i < len(text):
        if text[i] < 0xC2:
            i += 1
        elif text[i] < 0xCC:  # below U+0300 everything is composed
            if text[i] == 0xC2 and text[i + 1] < 0xA0:
                needs |= np.uint8(_NEWLINES if text[i + 1] == 0x85 else _CONTROLS)
            i += 2
        else:
            code, width = decode(text, i)
            i += width
            if code == 0x2028 or code == 0x2029:
                needs |= np.uint8(_NEWLINES)
            elif len(inert) and (code >= len(inert) or not inert[code]):
                needs |= np.uint8(_NOT_NFC)
    return needs


@lru_cache(maxsize=1)
def _inert_characters() -> NDArray[np.bool_]:
    """Code point ─▶ whether NFC never changes it nor joins it to what stands before it. Beyond the table: maybe."""
    characters = [chr(code) for code in range(_INERT_LIMIT)]
    inert = np.array([not unicodedata.combining(c) and unicodedata.is_normalized("NFC", c) for c in characters])
    for c in characters:
        parts = unicodedata.decomposition(c).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            inert[int(parts[1], 16)] = False
    inert[0x1161:0x1200] = False  # vowels and finals of Hangul join by rule, not by table
    return inert


_INERT_LIMIT = 0x20000


def _by_kernel(newlines: bool) -> Step:
    def step(text: TextBuffers, which: NDArray[np.int64]) -> tuple[TextBuffers, NDArray[np.int64]]:
        times = np.zeros(len(text), np.int64)
        if not len(which):
            return text, times
        times[which] = -1
        data, offsets = _rewrite(text.data, np.ascontiguousarray(text.offsets), newlines, times)
        return (TextBuffers(data=data, offsets=offsets) if times.any() else text), times

    return step


@numba.njit(cache=True)
def _rewrite(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], newlines: bool, times: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Texts with line feeds for line breaks (`newlines`), or else without control characters.

    `times`: -1 for the documents to look at; how many characters were rewritten stands there afterwards.
    """
    out, new_offsets, size = np.empty(offsets[-1] - offsets[0], np.uint8), np.zeros_like(offsets), 0
    for d in range(len(offsets) - 1):
        i, last = offsets[d], offsets[d + 1]
        if times[d] == 0:
            out[size : size + last - i] = data[i:last]
            size, i = size + last - i, last
        times[d] = 0
        while i < last:
            width = _line_break(data, i, last) if newlines else _control(data, i, last)
            if width == 0:
                out[size] = data[i]
                size, i = size + 1, i + 1
                continue
            i += width
            times[d] += 1
            if newlines:
                out[size] = 10
                size += 1
        new_offsets[d + 1] = size
    return out[:size], new_offsets


@numba.njit(cache=True)
def _line_break(data: NDArray[np.uint8], i: int, last: int) -> int:
    """Bytes of the line break at `i` that is no line feed, or 0."""
    if 11 <= data[i] <= 13:
        return 2 if data[i] == 13 and i + 1 < last and data[i + 1] == 10 else 1
    if data[i] == 0xC2:
        return 2 if data[i + 1] == 0x85 else 0
    if data[i] == 0xE2 and data[i + 1] == 0x80 and (data[i + 2] == 0xA8 or data[i + 2] == 0xA9):
        return 3
    return 0


@numba.njit(cache=True)
def _control(data: NDArray[np.uint8], i: int, last: int) -> int:
    """Bytes of the control character at `i` that is no white space, or 0."""
    if data[i] < 32 or data[i] == 127:
        return 0 if 9 <= data[i] <= 13 else 1
    return 2 if data[i] == 0xC2 and data[i + 1] < 0xA0 and data[i + 1] != 0x85 else 0


def _by_document(change: Callable[[str], str]) -> Step:
    """A step of ordinary Python, for the few documents that may need it."""

    def step(text: TextBuffers, which: NDArray[np.int64]) -> tuple[TextBuffers, NDArray[np.int64]]:
        times = np.zeros(len(text), np.int64)
        new: dict[int, bytes] = {}
        for d in which.tolist():
            old = text.data[text.offsets[d] : text.offsets[d + 1]].tobytes().decode()
            changed = change(old)
            if changed != old:
                new[d], times[d] = changed.encode(), 1
        return replaced(text, new), times

    return step


def replaced(text: TextBuffers, new: dict[int, bytes]) -> TextBuffers:
    """The texts with those of some documents, by number, replaced."""
    if not new:
        return text
    num_bytes = text.num_bytes.copy()
    view, at = memoryview(text.data.data), int(text.offsets[0])
    parts: list[bytes | memoryview] = []
    for d in sorted(new):
        parts += [view[at : int(text.offsets[d])], new[d]]
        at, num_bytes[d] = int(text.offsets[d + 1]), len(new[d])
    data = b"".join([*parts, view[at : int(text.offsets[-1])]])
    return TextBuffers(np.frombuffer(data, np.uint8), np.concatenate([[0], np.cumsum(num_bytes)]))


def _compose(text: str) -> str:
    return text if unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", text)


def _mojibake_repair() -> Callable[[str], str]:
    try:
        from ftfy import fix_encoding
        from ftfy.badness import is_bad
    except ImportError as error:
        raise ConfigError(
            "normalise.mojibake needs ftfy: pip install 'tokenmill-corpus[normalise]', or set it to false"
        ) from error

    def repaired(line: str) -> str:
        return fix_encoding(line) if _SUSPECT.search(line) and is_bad(line) else line

    def repair(text: str) -> str:
        if not _SUSPECT.search(text):
            return text
        return "".join(map(repaired, text.splitlines(keepends=True))).replace("\0", "\ufffd")

    return repair


_SUSPECT = re.compile("[\\x80-\u052f\u2000-\u25ff\uf8ff\ufb01\ufb02]{2}|[ÂÃ] |[\\x80-\\x84\\x86-\\x9f]")
"""What UTF-8 read in a single-byte encoding leaves: two characters of such encodings together, or one and a space that
was a no-break space, or a C1 control character. Most lines have none, and `ftfy` is slow to say so."""
