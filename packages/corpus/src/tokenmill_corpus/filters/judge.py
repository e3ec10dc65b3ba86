"""Families applied one after the other: each sees the documents that the ones before it left, as they left them.

documents ─▶ rules ─▶ the first one broken is why a document goes ─▶ the others' texts edited ─▶ next family
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import is_blank
from tokenmill_core.documents import Account
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Edit, Family, Outcome, Rule

OnDrop = Callable[[Documents, NDArray[np.bool_], str, Rule], None]
"""Hears of each rule that drops documents: (documents of the batch, which of them, the reason, the rule)."""
OnEdit = Callable[[Documents, str, NDArray[np.int64]], None]
"""Hears of each edit: (documents of the batch, the reason, bytes it took from each; 0 from those that are dropped)."""


@dataclass
class Judge:
    """Applies families, and enters everything dropped or cut away into `account`."""

    families: Mapping[str, Family]
    """In the order of application, by name."""
    account: Account
    on_drop: OnDrop | None = None
    on_edit: OnEdit | None = None
    scores: bool = False
    """Whether the values of all rules become columns, `<family>.<score>`."""
    findings: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    """What the families found, for their reports."""

    def __call__(self, documents: Documents) -> Documents:
        """The documents that every family keeps, edited."""
        for name, family in self.families.items():
            if not len(documents):
                break
            documents = self._apply(name, family.apply(documents), documents)
        return documents

    def _apply(self, name: str, outcome: Outcome, documents: Documents) -> Documents:
        if outcome.findings:
            self.findings.setdefault(name, []).extend(outcome.findings)
        keep = self._keep(name, outcome, documents)
        columns = dict(outcome.columns)
        if self.scores and self.families[name].has_scores:
            columns |= {f"{name}.{rule.score}": pa.array(rule.values) for rule in outcome.rules}
        if outcome.edit is not None:
            documents = self._edited(name, outcome.edit, documents, keep)
        if columns:
            documents = documents.with_columns(columns)
        return documents if keep.all() else documents.filter(pa.array(keep))

    def _keep(self, name: str, outcome: Outcome, documents: Documents) -> NDArray[np.bool_]:
        """Which documents break no rule; the first one broken is the reason."""
        num_bytes = documents.text.num_bytes
        keep = np.ones(len(documents), np.bool_)
        for rule in rules_of(outcome):
            drops = rule.breaks & keep
            keep &= ~drops
            if drops.any():
                reason = f"{name}.{rule.setting}"
                self.account.drop(reason, int(drops.sum()), int(num_bytes[drops].sum()))
                if self.on_drop is not None:
                    self.on_drop(documents, drops, reason, rule)
        return keep

    def _edited(self, name: str, edit: Edit, documents: Documents, keep: NDArray[np.bool_]) -> Documents:
        """The documents with their new texts; what those that stay lost is on the account."""
        for what, removed in edit.removed.items():
            taken = np.where(keep, removed, 0)
            self.account.drop(f"{name}.{what}", 0, int(taken.sum()))
            if self.on_edit is not None:
                self.on_edit(documents, f"{name}.{what}", taken)
        for what, count in edit.count.items():
            self.account.note(f"{name}.{what}", int(count[keep].sum()))
        return documents.with_texts(edit.text)


def rules_of(outcome: Outcome) -> list[Rule]:
    """The rules, and one more against texts of which an edit left nothing, or white space alone."""
    rules = list(outcome.rules)
    if outcome.edit is not None:
        empty = is_blank(outcome.edit.text)
        rules.append(Rule("emptied", "emptied", empty.astype(np.float64), 0.0, empty))
    return rules


def edit_only(families: Mapping[str, Family], documents: Documents) -> Documents:
    """The documents as they would be, had no rule judged them; without those of which edits leave nothing."""
    for family in families.values():
        edit = family.apply(documents).edit if family.edits and len(documents) else None
        if edit is not None:
            documents = documents.with_texts(edit.text).filter(pa.array(~is_blank(edit.text)))
    return documents
