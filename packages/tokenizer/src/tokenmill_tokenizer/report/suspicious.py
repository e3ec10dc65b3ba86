"""Checks that point at tokens worth a look, each with its reason. Many finds are harmless: a person judges."""

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenmill_tokenizer.engines import Reference
from tokenmill_tokenizer.report.result import Suspicion, Token
from tokenmill_tokenizer.report.subject import Subject
from tokenmill_tokenizer.report.vocabulary import Vocabulary, shown

MAX_SHOWN = 50
"""Tokens named for each reason."""
LONG_CHARACTERS = 8
"""A token of so many characters is long."""
LONG_RUN = 16
"""So many times the same character is a long run."""
OFTEN = 20
"""Occurrences in one document that are many."""

_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
"""How a vocabulary that is not byte-level spells one byte."""

_BEFORE, _AFTER = ("", "a", "A", "1", "!", "€", " ", "\n"), ("", "a", "A", "1", "!", "re", " ", "\n")
_CONTEXTS = tuple(itertools.product(_BEFORE, _AFTER))
"""What is tried around a token's text: all that splits tell apart, a sign that is in few merges, a contraction."""

Found = Mapping[int, str]
"""Ids and what there is to say of each."""


@dataclass(frozen=True)
class Usage:
    """How the measured text uses the tokens: occurrences of each id, and documents that hold it."""

    counts: NDArray[np.int64]
    documents: NDArray[np.int64]


@dataclass(frozen=True)
class Context:
    """What checks look at."""

    subject: Subject
    usage: Usage | None
    """None without any text."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens."""
        return self.subject.vocabulary

    @cached_property
    def texts(self) -> dict[int, str]:
        """Text of each ordinary token that is whole characters."""
        pairs = zip(self.vocabulary.texts, self.vocabulary.ordinary.tolist(), strict=True)
        return {index: text for index, (text, ordinary) in enumerate(pairs) if ordinary and text is not None}

    @cached_property
    def reference(self) -> Reference:
        """What encodes any vocabulary, one with specials that texts can forge as well."""
        return Reference(self.subject.tokenizer, allow_special=False)

    @cached_property
    def unreached(self) -> dict[int, str]:
        """Ordinary tokens for which no text was found that gives them, and what their own text gives."""
        if not self.vocabulary.byte_level:
            return self._unmerged(self.texts)
        partial = np.flatnonzero(self.vocabulary.partial).tolist()
        return self._encoded_otherwise() | self._unmerged(partial)

    def encoded(self, texts: Iterable[str]) -> list[list[int]]:
        """Ids of each text."""
        ids, lengths = self.reference.encode(pa.array(texts, pa.large_string()))
        ends = np.cumsum(lengths).tolist()
        return [ids[start:end].tolist() for start, end in itertools.pairwise([0, *ends])]

    def _encoded_otherwise(self) -> dict[int, str]:
        pairs = zip(self.texts, self.encoded(self.texts.values()), strict=True)
        split = {index: ids for index, ids in pairs if ids != [index]}
        # What merges cannot build appears in no text; for what they can, the cuts depend on what stands around it.
        possible = [index for index in split if self._merged(index) == [index]]
        reached = {index for index in possible if self._is_in_context(index)}
        return {index: f"its text is {self._sum(ids)}" for index, ids in split.items() if index not in reached}

    def _is_in_context(self, index: int) -> bool:
        text = self.texts[index]
        return any(index in ids for ids in self.encoded(before + text + after for before, after in _CONTEXTS))

    def _unmerged(self, indices: Iterable[int]) -> dict[int, str]:
        """By the merges alone: a part of a character is no text to encode, and a word's start may get a space."""
        found = {}
        for index in indices:
            ids = self._merged(index)
            if ids != [index] and not _BYTE_TOKEN.fullmatch(self.vocabulary.entries[index] or ""):
                found[index] = f"its bytes are {self._sum(ids)}"
        return found

    def _merged(self, index: int) -> list[int]:
        return [token.id for token in self.subject.tokenizer.model.tokenize(self.vocabulary.entries[index] or "")]

    def _sum(self, ids: Iterable[int]) -> str:
        return " + ".join(shown(self.vocabulary.tokens[index]) for index in ids) or "no token"


@dataclass(frozen=True)
class Check:
    """One reason to look at a token."""

    reason: str
    meaning: str
    find: Callable[[Context], Found]
    needs_text: bool = False
    """Whether it says something only of tokens in a text."""
    by_count: bool = False
    """Whether the most frequent tokens come first, instead of the longest."""


def _unreachable(context: Context) -> Found:
    return {index: parts for index, parts in _never_met(context) if not context.vocabulary.partial[index]}


def _unreachable_parts(context: Context) -> Found:
    return {index: parts for index, parts in _never_met(context) if context.vocabulary.partial[index]}


def _never_met(context: Context) -> Iterator[tuple[int, str]]:
    """Of the unreached ones those that the sample, if there is one, does not have either."""
    for index, parts in context.unreached.items():
        if context.usage is None or not context.usage.counts[index]:
            yield index, parts


def _never_used(context: Context) -> Found:
    assert context.usage is not None
    counts = context.usage.counts
    return {i: "" for i, text in context.texts.items() if len(text) >= LONG_CHARACTERS and not counts[i]}


def _in_one_document(context: Context) -> Found:
    assert context.usage is not None
    often = (context.usage.documents == 1) & (context.usage.counts >= OFTEN) & context.vocabulary.ordinary
    return dict.fromkeys(np.flatnonzero(often & (context.vocabulary.num_bytes > 1)).tolist(), "")


def _odd_characters(context: Context) -> Found:
    found = {}
    for index, text in context.texts.items():
        if len(context.vocabulary.tokens[index]) > 1 and (match := _ODD_CHARACTER.search(text)):
            found[index] = f"U+{ord(match[0]):04X}"
    return found


_ODD_CHARACTER = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffd]")
"""Control characters but tab, line ends and U+0085; and what stands for bytes that were no text."""


def _long_run(context: Context) -> Found:
    return {index: "" for index, text in context.texts.items() if _RUN.search(text)}


_RUN = re.compile(rf"(.)\1{{{LONG_RUN - 1},}}", re.DOTALL)


def _shaped(context: Context) -> Found:
    found = {}
    for index, text in context.texts.items():
        word = text.strip()
        name = next((name for name, matches in _SHAPES.items() if matches(word)), None)
        if name:
            found[index] = name
    return found


def _mixed(word: str) -> bool:
    return any(map(str.isdigit, word)) and any(map(str.islower, word)) and any(map(str.isupper, word))


_SHAPES: dict[str, Callable[[str], object]] = {
    "e-mail": re.compile(r"[\w.+-]@[\w-]+\.|@\w+\.(com|org|net)").search,
    "URL": re.compile(r"(?i)[a-z]{2,}://|www\.|\.(com|org|net|html?|php)$").search,
    "secret": re.compile(r"AKIA[A-Z0-9]|gh[pousr]_|sk-[A-Za-z0-9]|AIza|xox[bp]-|eyJ[A-Za-z0-9]|-----BEGIN").search,
    "hex": re.compile(r"(0x)?(?=.*\d.*\d)(?=.*[A-Fa-f].*[A-Fa-f])([0-9a-f]{8,}|[0-9A-F]{8,})").fullmatch,
    "base64": lambda word: len(word) >= 12 and re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", word) and _mixed(word),
    "user name": re.compile(r"@\w*[\d_]\w*|[A-Za-z]{3,}_?\d{3,}|[A-Za-z]+\d+[A-Za-z]+\d+").fullmatch,
}
"""Shapes of machine-made or personal text, by name; the first that fits counts."""


def _other_spelling(context: Context) -> Found:
    composed = {index: unicodedata.normalize("NFC", text) for index, text in context.texts.items()}
    by_text = {text: index for index, text in context.texts.items()}
    return {
        index: f"in NFC it is id {by_text[form]}"
        for index, form in composed.items()
        if form != context.texts[index] and form in by_text
    }


def _special_from_text(context: Context) -> Found:
    vocabulary = context.vocabulary
    specials = {int(i): vocabulary.texts[i] or "" for i in np.flatnonzero(vocabulary.special)}
    parts = context.encoded(specials.values())
    return {index: "" for index, part in zip(specials, parts, strict=True) if index in part}


CHECKS = (
    Check(
        "special_from_text",
        "special tokens whose text, as ordinary text, gives their id: a document can forge them",
        _special_from_text,
    ),
    Check(
        "unreachable",
        "no text was found to give this id: not the token's own, alone or with something around it, nor any measured",
        _unreachable,
    ),
    Check(
        "unreachable_part",
        "parts of characters to which the merges do not lead",
        _unreachable_parts,
    ),
    Check(
        "in_one_document",
        f"in one document only, and there at least {OFTEN} times: hardly trained, a candidate for a glitch token",
        _in_one_document,
        needs_text=True,
        by_count=True,
    ),
    Check(
        "odd_characters",
        "control characters or U+FFFD inside: broken or binary data in what the tokenizer was trained on",
        _odd_characters,
    ),
    Check(
        "long_run",
        f"one character at least {LONG_RUN} times in a row",
        _long_run,
    ),
    Check(
        "looks_made",
        "the shape of a URL, an e-mail address, a secret, hex, base64 or a user name",
        _shaped,
    ),
    Check(
        "other_spelling",
        "not in NFC, and the same text in NFC is a token too",
        _other_spelling,
    ),
    Check(
        "never_used",
        f"at least {LONG_CHARACTERS} characters long, and nowhere in the measured text",
        _never_used,
        needs_text=True,
    ),
)


def find_suspicious(subject: Subject, usage: Usage | None) -> tuple[Suspicion, ...]:
    """What every check finds that applies; those that find nothing are there with a count of 0."""
    context = Context(subject, usage)
    return tuple(_run(check, context) for check in CHECKS if usage is not None or not check.needs_text)


def _run(check: Check, context: Context) -> Suspicion:
    found = check.find(context)
    rank = context.usage.counts if check.by_count and context.usage else context.vocabulary.num_bytes
    first = sorted(found, key=lambda index: (-int(rank[index]), index))[:MAX_SHOWN]
    tokens = tuple(describe_token(context.vocabulary, context.usage, index, found[index]) for index in first)
    return Suspicion(reason=check.reason, meaning=check.meaning, count=len(found), tokens=tokens)


def describe_token(vocabulary: Vocabulary, usage: Usage | None, index: int, detail: str = "") -> Token:
    """The token `index` for people."""
    token, text = vocabulary.tokens[index], vocabulary.texts[index]
    return Token(
        id=index,
        token=shown(token),
        bytes=len(token),
        characters=None if text is None else len(text),
        count=None if usage is None else int(usage.counts[index]),
        detail=detail,
    )
