"""What a family of rules is: settings that judge documents, change their texts, or both.

A rule's name is the setting that holds its threshold, and says its direction: `min_words` keeps documents with at least
that many words, `max_url_ratio` those with at most that share of URLs. The threshold itself is always kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_core.manifest import Frozen
from tokenmill_corpus.documents import Documents


@dataclass(frozen=True)
class Rule:
    """One rule over a batch: the score of every document, and which of them break the rule."""

    setting: str
    """Name of the setting with the threshold; with the family's name before it, the reason in the ledger."""
    score: str
    """Name of what is measured."""
    values: NDArray[np.float64]
    threshold: float
    breaks: NDArray[np.bool_]
    detail: pa.Array | None = None
    """For each document, in words what the value does not say, such as the language that was found; or null."""


def at_least(setting: str, values: NDArray[np.generic], threshold: float, detail: pa.Array | None = None) -> Rule:
    """Documents stay whose value is `threshold` or more. `setting` begins with `min_`, the score's name follows it."""
    assert setting.startswith("min_"), setting
    return _rule(setting, setting[4:], values, threshold, np.less, detail)


def at_most(setting: str, values: NDArray[np.generic], threshold: float, detail: pa.Array | None = None) -> Rule:
    """Documents stay whose value is `threshold` or less. `setting` begins with `max_`, the score's name follows it."""
    assert setting.startswith("max_"), setting
    return _rule(setting, setting[4:], values, threshold, np.greater, detail)


def not_flagged(setting: str, flags: NDArray[np.bool_], detail: pa.Array | None = None) -> Rule:
    """Documents stay that are not flagged; the score is 1 where they are, else 0."""
    return _rule(setting, setting, flags, 0.0, np.greater, detail)


def _rule(
    setting: str, score: str, values: NDArray[np.generic], threshold: float, breaks: np.ufunc, detail: pa.Array | None
) -> Rule:
    scores = values.astype(np.float64)
    return Rule(setting, score, scores, threshold, breaks(scores, threshold), detail)


@dataclass(frozen=True)
class Edit:
    """New texts for all documents of a batch."""

    text: TextBuffers
    removed: Mapping[str, NDArray[np.int64]]
    """What was done ─▶ bytes it took from each document; below zero where it made them longer."""
    count: Mapping[str, NDArray[np.int64]]
    """What was done ─▶ how many times in each document."""


@dataclass(frozen=True)
class Outcome:
    """What a family says of a batch. Rules are of the documents as they came in, one entry a document."""

    rules: Sequence[Rule] = ()
    edit: Edit | None = None
    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    """Columns to add to the documents."""
    findings: Sequence[Mapping[str, Any]] = ()
    """What the family's report is made of, as JSON."""


class Family(Frozen, ABC):
    """Settings of one family of rules. Instances are picklable and do not change."""

    enabled: bool = False
    """Whether the family is applied; profiles say it for theirs."""

    edits: ClassVar[bool] = False
    """Whether it may change texts."""
    has_scores: ClassVar[bool] = True
    """Whether `--scores` makes columns of its rules: they must be the same ones for every batch."""

    @abstractmethod
    def apply(self, documents: Documents) -> Outcome:
        """Judge, and where the family does so edit, every document of a batch. No value is NaN."""

    def check(self) -> None:
        """Raise `ConfigError` or `InputError` where a setting names something that is not there, before any work."""

    def named_files(self) -> dict[str, str]:
        """Setting ─▶ path of each file that decides what the family says: they become inputs of the dataset."""
        return {}

    def distributions(self) -> tuple[str, ...]:
        """Installed distributions that decide what the family says: their versions are recorded."""
        return ()

    def columns_read(self) -> tuple[str, ...]:
        """Columns of the raw data that it looks at, beside the text."""
        return ()

    def report(self, findings: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
        """What the findings of all batches, in order, come to: `<family>.json` beside the dataset; none for most."""
        return None
