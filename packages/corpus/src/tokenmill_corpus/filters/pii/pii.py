"""PII: what identifies a person or opens a door.

Each kind is kept, replaced by a placeholder, or a reason to drop the document; see `emails`, `ips`, `numbers` and
`secrets` for what exactly is recognised. Where two kinds claim the same bytes, secrets go before e-mail addresses, IP
addresses, card numbers and phone numbers, in this order.
"""

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_core.manifest import Frozen
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Edit, Family, Outcome, Rule
from tokenmill_corpus.filters.pii.candidates import Span, without_overlaps
from tokenmill_corpus.filters.pii.emails import find_emails
from tokenmill_corpus.filters.pii.ips import find_ips
from tokenmill_corpus.filters.pii.numbers import find_cards, find_phones
from tokenmill_corpus.filters.pii.secrets import find_secrets


class Action(StrEnum):
    """What happens where a kind is found."""

    KEEP = "keep"
    REPLACE = "replace"
    DROP = "drop"
    """The whole document goes."""


class IpScope(StrEnum):
    """Which IP addresses count."""

    PUBLIC = "public"
    ALL = "all"


class Placeholders(Frozen):
    """What stands in the place of each kind."""

    secret: str = "<SECRET>"
    """For keys, tokens and passwords."""
    email: str = "<EMAIL>"
    """For e-mail addresses."""
    ip: str = "<IP>"
    """For IP addresses."""
    card: str = "<CARD>"
    """For payment card numbers."""
    phone: str = "<PHONE>"
    """For phone numbers."""


class Pii(Family):
    """Replace personal data and secrets, or drop the documents that hold them."""

    edits: ClassVar[bool] = True

    secret: Action = Action.REPLACE
    """Keys, tokens and passwords in code and configuration."""
    email: Action = Action.REPLACE
    """E-mail addresses."""
    ip: Action = Action.REPLACE
    """IP addresses, versions 4 and 6."""
    ip_scope: IpScope = IpScope.PUBLIC
    """`public`: those set aside for private, local or documentation use stay; `all`."""
    card: Action = Action.REPLACE
    """Payment card numbers with a right check digit."""
    phone: Action = Action.REPLACE
    """Phone numbers."""
    placeholders: Placeholders = Placeholders()
    """What replaces each kind; "" cuts it out."""

    def apply(self, documents: Documents) -> Outcome:
        """A rule for each kind that drops (the score: how many there are), and the edit for those that are replaced."""
        text = documents.text
        spans = _by_kind(
            text, {kind: find for kind, find in self._finders().items() if self._action(kind) != Action.KEEP}
        )
        rules: list[Rule] = []
        for kind, found in spans.items():
            if self._action(kind) is Action.DROP:
                times = np.bincount(_document_of(text, found), minlength=len(text))
                rules.append(Rule(kind, kind, times.astype(np.float64), 0.0, times > 0))
        replaced = {kind: found for kind, found in spans.items() if found and self._action(kind) is Action.REPLACE}
        return Outcome(rules=rules, edit=self._edit(text, replaced) if replaced else None)

    def _finders(self) -> dict[str, Callable[[TextBuffers], list[Span]]]:
        ips = partial(find_ips, public_only=self.ip_scope is IpScope.PUBLIC)
        return {"secret": find_secrets, "email": find_emails, "ip": ips, "card": find_cards, "phone": find_phones}

    def _action(self, kind: str) -> Action:
        action: Action = getattr(self, kind)
        return action

    def _edit(self, text: TextBuffers, spans: dict[str, list[Span]]) -> Edit:
        removed, count, placed = {}, {}, []
        for kind, found in spans.items():
            placeholder = getattr(self.placeholders, kind).encode()
            of, lengths = _document_of(text, found), np.array([end - start - len(placeholder) for start, end in found])
            removed[kind] = _sums(of, lengths, len(text))
            count[kind] = np.bincount(of, minlength=len(text)).astype(np.int64)
            placed += [(start, end, placeholder) for start, end in found]
        num_bytes = text.num_bytes - sum(removed.values())
        data = _with_placeholders(text, sorted(placed))
        return Edit(TextBuffers(data, np.concatenate([[0], np.cumsum(num_bytes)])), removed, count)


def _by_kind(text: TextBuffers, finders: dict[str, Callable[[TextBuffers], list[Span]]]) -> dict[str, list[Span]]:
    """What each finder found that no finder before it claims."""
    taken: list[Span] = []
    spans = {}
    for kind, find in finders.items():
        found = without_overlaps(find(text))
        ends = np.array([end for _, end in taken], np.int64)
        starts = [start for start, _ in taken]
        # Those taken are disjoint and in order: of them, one can only meet the first that ends after its start.
        free = []
        for start, end in found:
            at = int(np.searchsorted(ends, start, side="right"))
            if at == len(taken) or starts[at] >= end:
                free.append((start, end))
        spans[kind] = free
        taken = sorted(taken + free)
    return spans


def _document_of(text: TextBuffers, spans: list[Span]) -> NDArray[np.int64]:
    starts = np.array([start for start, _ in spans], np.int64)
    return np.searchsorted(text.offsets, starts, side="right") - 1


def _sums(of: NDArray[np.int64], values: NDArray[np.int64], num_documents: int) -> NDArray[np.int64]:
    sums = np.zeros(num_documents, np.int64)
    np.add.at(sums, of, values)
    return sums


def _with_placeholders(text: TextBuffers, placed: list[tuple[int, int, bytes]]) -> NDArray[np.uint8]:
    view, at = memoryview(text.data.data), int(text.offsets[0])
    parts: list[bytes | memoryview] = []
    for start, end, placeholder in placed:
        parts += [view[at:start], placeholder]
        at = end
    return np.frombuffer(b"".join([*parts, view[at : int(text.offsets[-1])]]), np.uint8)
