"""C4's rules (Raffel et al. 2020): lines that are no text are cut away, and documents that then are too little dropped.

    line ─▶ citation marks cut ─▶ long word? no full stop? short? "javascript"? a policy? ─▶ kept ─▶ joined by newlines

Lines are those of `lines.py`: white space at their ends and blank lines are cut as well. A line ends well where its
last character ends a sentence in any script (Unicode's Sentence_Terminal) or is a quotation mark, but not in `...`. A
word of a line is a run without white space; in scripts written without spaces each character is one. A sentence ends
with the characters that end sentences, and quotation marks and brackets after them, where white space, the line's end,
or a script written without spaces comes next; what remains of a line is one more.

Lorem ipsum and curly brackets drop the document wherever in it they stand. Phrases are looked for in lower and upper
case. A rule is switched off by `false`, or a count of 0; the threshold itself is kept.
"""

from typing import ClassVar, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tokenmill_core.compiled.eight_bytes import copy, find_byte
from tokenmill_core.compiled.kernel import kernel
from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_corpus.character_classes import (
    QUOTE,
    SPACE,
    TERMINAL,
    UNSPACED,
    character_classes,
    class_at,
    class_before,
)
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Edit, Family, Outcome, at_least, not_flagged
from tokenmill_corpus.lines import Lines, strip
from tokenmill_corpus.phrases import Phrases, find_phrases, make_phrases

LOREM_IPSUM, JAVASCRIPT = 1, 2
POLICY = 0b11111100
PHRASES = make_phrases(
    (
        *("lorem ipsum", "javascript"),
        *("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies"),
    )
)
"""Phrase p is bit p of the constants above."""

KEPT, LONG_WORD, NO_TERMINAL_PUNCTUATION, SHORT, JAVASCRIPT_LINE, POLICY_LINE, CITATION = range(7)
CUT = {
    "long_word_lines": LONG_WORD,
    "no_terminal_punctuation_lines": NO_TERMINAL_PUNCTUATION,
    "short_lines": SHORT,
    "javascript_lines": JAVASCRIPT_LINE,
    "policy_lines": POLICY_LINE,
    "citations": CITATION,
}
"""What is cut away, as the ledger names it; for lines in the order in which they are asked."""
NEWLINE, SPACE_BYTE, DOT, CURLY_BRACKET, SQUARE_BRACKET, SQUARE_END, ROUND_END = (ord(c) for c in "\n .{[])")


class C4(Family):
    """Cuts lines away, and drops documents of fewer sentences than a paragraph has."""

    edits: ClassVar[bool] = True

    drop_lorem_ipsum: bool = True
    """Drop documents with "lorem ipsum"."""
    drop_curly_brackets: bool = True
    """Drop documents with a `{`, which are code more often than text."""
    max_word_length: int = Field(default=1000, ge=1)
    """Most characters of a word; lines with a longer one are cut."""
    remove_citations: bool = True
    """Cut the marks `[12]`, `[]`, `[edit]` and `[citation needed]`."""
    require_terminal_punctuation: bool = True
    """Cut lines that do not end as sentences do. FineWeb keeps them."""
    min_words_per_line: int = Field(default=3, ge=0)
    """Fewest words of a line, marks of citations included."""
    remove_javascript_lines: bool = True
    """Cut lines with "javascript"."""
    remove_policy_lines: bool = True
    """Cut lines about cookies, terms of use and privacy policies."""
    min_sentences: int = Field(default=5, ge=0)
    """Fewest sentences in what is kept of a document."""

    def apply(self, documents: Documents) -> Outcome:
        """Every document's lines are cut; what is left of it is what `min_sentences` is about."""
        text = documents.text
        options = Options(
            max_word_length=self.max_word_length,
            remove_citations=self.remove_citations,
            require_terminal_punctuation=self.require_terminal_punctuation,
            min_words_per_line=self.min_words_per_line,
            unwanted=JAVASCRIPT * self.remove_javascript_lines | POLICY * self.remove_policy_lines,
        )
        cut = _cut(text.data, text.offsets, documents.lines, character_classes(), PHRASES, options)
        edited = TextBuffers(cut.data[: cut.offsets[-1]], cut.offsets)
        removed = {name: cut.bytes[reason] for name, reason in CUT.items()}
        removed["white_space"] = text.num_bytes - edited.num_bytes - sum(removed.values())
        rules = (
            not_flagged("drop_lorem_ipsum", cut.lorem_ipsum & self.drop_lorem_ipsum),
            not_flagged("drop_curly_brackets", cut.curly_bracket & self.drop_curly_brackets),
            at_least("min_sentences", cut.sentences, self.min_sentences),
        )
        return Outcome(rules, Edit(edited, removed, count={name: cut.times[reason] for name, reason in CUT.items()}))


class Options(NamedTuple):
    """Settings of lines, for compiled code."""

    max_word_length: int
    remove_citations: bool
    require_terminal_punctuation: bool
    min_words_per_line: int
    unwanted: int
    """Bits of the phrases for which a line goes."""


class Cut(NamedTuple):
    """Texts after the cut, and what was seen of each document."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    bytes: NDArray[np.int64]
    """[what was cut, document]"""
    times: NDArray[np.int64]
    sentences: NDArray[np.int64]
    lorem_ipsum: NDArray[np.bool_]
    curly_bracket: NDArray[np.bool_]


@numba.njit(cache=True)
def _cut(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    lines: Lines,
    classes: NDArray[np.uint8],
    phrases: Phrases,
    options: Options,
) -> Cut:
    n = len(offsets) - 1
    cut = Cut(
        np.empty(offsets[n] - offsets[0], np.uint8),
        np.zeros(n + 1, np.int64),
        np.zeros((CITATION + 1, n), np.int64),
        np.zeros((CITATION + 1, n), np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.bool_),
        np.zeros(n, np.bool_),
    )
    for d in range(n):
        end = cut.offsets[d]
        somewhere = find_phrases(data, offsets[d], offsets[d + 1], phrases)
        cut.lorem_ipsum[d] = somewhere & LOREM_IPSUM != 0
        cut.curly_bracket[d] = find_byte(data, offsets[d], offsets[d + 1], CURLY_BRACKET) < offsets[d + 1]
        for k in range(lines.first[d], lines.last[d]):
            first, last = offsets[d] + lines.starts[k], offsets[d] + lines.ends[k]
            found = find_phrases(data, first, last, phrases) if somewhere else 0
            end = _cut_line(data, first, last, found, classes, options, cut, d, end)
        cut.offsets[d + 1] = end
    return cut


@kernel
def _cut_line(
    data: NDArray[np.uint8],
    first: int,
    last: int,
    found: int,
    classes: NDArray[np.uint8],
    options: Options,
    cut: Cut,
    d: int,
    end: int,
) -> int:
    """Write what is kept of a line after byte `end` of the new texts; where they then end."""
    start = end + (end > cut.offsets[d])
    stop, citations, citation_bytes = _copy(data, first, last, cut.data, start, options.remove_citations)
    reason = KEPT
    if last - first > options.max_word_length and _longest_word(data, first, last, classes) > options.max_word_length:
        reason = LONG_WORD
    elif options.require_terminal_punctuation and not _ends_well(cut.data, start, stop, classes):
        reason = NO_TERMINAL_PUNCTUATION
    elif not _has_words(data, first, last, classes, options.min_words_per_line):
        reason = SHORT
    elif found & options.unwanted:
        reason = JAVASCRIPT_LINE if found & options.unwanted & JAVASCRIPT else POLICY_LINE
    if reason != KEPT:
        cut.bytes[reason, d] += last - first
        cut.times[reason, d] += 1
        return end
    cut.bytes[CITATION, d] += citation_bytes
    cut.times[CITATION, d] += citations
    if stop == start:
        return end
    if start > end:
        cut.data[end] = NEWLINE
    cut.sentences[d] += _count_sentences(cut.data, start, stop, classes)
    return stop


@kernel
def _copy(
    data: NDArray[np.uint8], first: int, last: int, out: NDArray[np.uint8], start: int, remove_citations: bool
) -> tuple[int, int, int]:
    """Copy a line, without citations, to byte `start` of `out`: (end of it in `out`, citations, their bytes)."""
    stop, citations, citation_bytes, i = start, 0, 0, first
    while i < last:
        bracket = find_byte(data, i, last, SQUARE_BRACKET) if remove_citations else last
        while stop == start and i < bracket and data[i] == SPACE_BYTE:  # where the line began with a citation
            i += 1
        copy(data, i, bracket, out, stop)
        stop += bracket - i
        i = bracket
        if i < last:
            width = _citation_at(data, i, last)
            if width == 0:
                out[stop] = SQUARE_BRACKET
                stop += 1
            citations += width > 0
            citation_bytes += width
            i += max(1, width)
    return strip(out, start, stop)[1], citations, citation_bytes


@kernel
def _citation_at(data: NDArray[np.uint8], i: int, last: int) -> int:
    """Bytes of the citation that begins with the bracket at byte `i`, or 0."""
    for name in (b"edit", b"citation needed"):
        end = i + 1 + len(name)
        if end < last and data[end] == SQUARE_END:
            same = True
            for k in range(len(name)):
                same = same and data[i + 1 + k] == name[k]
            if same:
                return end + 1 - i
    end = i + 1
    while end < last and 0x30 <= data[end] <= 0x39:
        end += 1
    return end + 1 - i if end < last and data[end] == SQUARE_END else 0


@kernel
def _longest_word(text: NDArray[np.uint8], first: int, last: int, classes: NDArray[np.uint8]) -> int:
    longest, i = 0, first
    length = 0
    while i < last:
        what, width = class_at(text, i, classes)
        i += width
        length = 0 if what & (SPACE | UNSPACED) else length + 1
        longest = max(longest, length)
    return longest


@kernel
def _has_words(text: NDArray[np.uint8], first: int, last: int, classes: NDArray[np.uint8], fewest: int) -> bool:
    words, inside, i = 0, False, first
    while i < last and words < fewest:
        what, width = class_at(text, i, classes)
        i += width
        words += what & UNSPACED != 0 or not (inside or what & SPACE)
        inside = not what & (SPACE | UNSPACED)
    return words >= fewest


@kernel
def _ends_well(text: NDArray[np.uint8], first: int, last: int, classes: NDArray[np.uint8]) -> bool:
    if first == last or not class_before(text, last, classes)[0] & (TERMINAL | QUOTE):
        return False
    return not (last - first >= 3 and text[last - 1] == DOT and text[last - 2] == DOT and text[last - 3] == DOT)


@kernel
def _count_sentences(text: NDArray[np.uint8], first: int, last: int, classes: NDArray[np.uint8]) -> int:
    sentences, begun, i = 0, first, first
    while i < last:
        what, width = class_at(text, i, classes)
        i += width
        if not what & TERMINAL:
            continue
        while i < last:
            what, width = class_at(text, i, classes)
            if not (what & (TERMINAL | QUOTE) or text[i] == ROUND_END or text[i] == SQUARE_END):
                break
            i += width
        if i == last or what & (SPACE | UNSPACED):
            sentences += 1
            begun = i
    return sentences + (begun < last)
