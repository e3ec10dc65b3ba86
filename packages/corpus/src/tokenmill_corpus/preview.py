"""What every rule would drop, on a sample, before anything is built: thresholds are tuned here.

    sample ─▶ families, nothing dropped ─▶ the value of every rule for every document ─▶ shares, quantiles, examples

Every rule is judged by itself, whatever the ones before it say; texts are edited as they would be.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenmill_core.documents import Account
from tokenmill_core.manifest import Frozen
from tokenmill_core.readers import Piece, ReadOptions, read_piece
from tokenmill_core.sources import plan_inputs
from tokenmill_core.stage import Inputs
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters import Family, Rule
from tokenmill_corpus.filters.judge import rules_of

QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
NUM_BINS = 24
_HEAD_CHARACTERS = 160
_NUM_EXAMPLES = 3


class Example(Frozen):
    """A document that a rule would drop."""

    file: str
    row: int
    value: float
    detail: str | None
    text: str
    """Its first characters."""


class RulePreview(Frozen):
    """What one rule would do to the sample."""

    rule: str
    """The setting: `<family>.<setting>`."""
    threshold: float
    dropped: int
    """Documents that break the rule."""
    dropped_bytes: int
    first: int
    """Documents for which it is the first rule broken: the ledger would count them here."""
    only: int
    """Documents that break no other rule: they would stay without it."""
    quantiles: dict[str, float]
    """Value at each quantile of the documents: the share that a `min_` rule with this threshold would drop."""
    histogram: tuple[int, ...]
    """Documents in bins of equal width from `histogram_from` to `histogram_to`, ends included in the outer bins."""
    histogram_from: float
    histogram_to: float
    examples: tuple[Example, ...]
    """Some that break the rule: the nearest to the threshold, one in the middle, the farthest."""


class Preview(Frozen):
    """A sample of documents under all rules."""

    documents: int
    bytes: int
    kept: int
    kept_bytes: int
    rules: tuple[RulePreview, ...]
    edits: dict[str, int]
    """What edits would cut away, in bytes."""


@dataclass
class _Column:
    """One rule over the sample."""

    threshold: float
    values: list[NDArray[np.float64]] = field(default_factory=list)
    breaks: list[NDArray[np.bool_]] = field(default_factory=list)
    details: list[pa.Array] = field(default_factory=list)

    def add(self, rule: Rule) -> None:
        self.values.append(rule.values)
        self.breaks.append(rule.breaks)
        self.details.append(pa.nulls(len(rule.values), pa.string()) if rule.detail is None else rule.detail)


def preview(families: Mapping[str, Family], inputs: Inputs, options: ReadOptions, num_documents: int) -> Preview:
    """Judge about `num_documents` documents of `inputs` by every rule of every family.

    The sample is the first documents of files spread evenly over all: the same for the same inputs.
    """
    columns: dict[str, _Column] = {}
    edits: dict[str, int] = {}
    places: list[pa.RecordBatch] = []
    for batch in sample(inputs, options, num_documents):
        documents = Documents(batch)
        for name, family in families.items():
            outcome = family.apply(documents)
            for rule in rules_of(outcome):
                columns.setdefault(f"{name}.{rule.setting}", _Column(rule.threshold)).add(rule)
            if outcome.edit is not None:
                for what, removed in outcome.edit.removed.items():
                    edits[f"{name}.{what}"] = edits.get(f"{name}.{what}", 0) + int(removed.sum())
                documents = documents.with_texts(outcome.edit.text)
            documents = documents.with_columns(outcome.columns)
        places.append(batch)
    return _summed_up(columns, edits, places)


def sample(inputs: Inputs, options: ReadOptions, num_documents: int) -> Iterator[pa.RecordBatch]:
    """The first documents of pieces spread evenly over all inputs, `num_documents` together if there are as many."""
    pieces = plan_inputs(inputs, options)
    num_chosen = min(len(pieces), num_documents)
    chosen = [pieces[index * len(pieces) // num_chosen] for index in range(num_chosen)]
    for index, piece in enumerate(chosen):
        # What short pieces lack, the ones after them make up for.
        for batch in _head(piece, options, -(-num_documents // (num_chosen - index))):
            num_documents -= batch.num_rows
            yield batch


def _head(piece: Piece, options: ReadOptions, num_documents: int) -> Iterator[pa.RecordBatch]:
    for batch in read_piece(piece, options, Account()):
        if num_documents <= 0:
            return
        yield batch.slice(0, num_documents)
        num_documents -= batch.num_rows


def _summed_up(columns: Mapping[str, _Column], edits: dict[str, int], places: Sequence[pa.RecordBatch]) -> Preview:
    sizes = np.concatenate([Documents(batch).text.num_bytes for batch in places]) if places else np.zeros(0, np.int64)
    breaks = np.zeros((len(columns), len(sizes)), np.bool_)
    for i, column in enumerate(columns.values()):
        breaks[i] = np.concatenate(column.breaks)
    broken = breaks.sum(axis=0)
    first = breaks & (np.cumsum(breaks, axis=0) == 1)
    documents = pa.Table.from_batches(places) if places else None
    rules = [
        _rule_preview(rule, column, breaks[i], first[i], breaks[i] & (broken == 1), sizes, documents)
        for i, (rule, column) in enumerate(columns.items())
        if documents is not None
    ]
    kept = broken == 0
    return Preview(
        documents=len(sizes),
        bytes=int(sizes.sum()),
        kept=int(kept.sum()),
        kept_bytes=int(sizes[kept].sum()),
        rules=tuple(rules),
        edits=edits,
    )


def _rule_preview(
    rule: str,
    column: _Column,
    breaks: NDArray[np.bool_],
    first: NDArray[np.bool_],
    only: NDArray[np.bool_],
    sizes: NDArray[np.int64],
    documents: pa.Table,
) -> RulePreview:
    values = np.concatenate(column.values)
    low, high = np.quantile(values, (0.01, 0.99)).tolist()
    histogram, _ = np.histogram(np.clip(values, low, high), bins=NUM_BINS, range=(low, high if high > low else low + 1))
    return RulePreview(
        rule=rule,
        threshold=column.threshold,
        dropped=int(breaks.sum()),
        dropped_bytes=int(sizes[breaks].sum()),
        first=int(first.sum()),
        only=int(only.sum()),
        quantiles={f"{q:g}": float(value) for q, value in zip(QUANTILES, np.quantile(values, QUANTILES), strict=True)},
        histogram=tuple(histogram.tolist()),
        histogram_from=low,
        histogram_to=high,
        examples=tuple(_examples(column, values, breaks, documents)),
    )


def _examples(
    column: _Column, values: NDArray[np.float64], breaks: NDArray[np.bool_], documents: pa.Table
) -> Iterator[Example]:
    dropped = np.flatnonzero(breaks)
    by_distance = dropped[np.argsort(np.abs(values[dropped] - column.threshold), kind="stable")]
    chosen = (
        by_distance[np.unique(np.linspace(0, len(by_distance) - 1, _NUM_EXAMPLES).astype(int))] if len(dropped) else []
    )
    details = pa.chunked_array(column.details, pa.string())
    for index in map(int, chosen):
        row = documents.slice(index, 1).to_pylist()[0]
        yield Example(
            file=row["file"],
            row=row["row"],
            value=float(values[index]),
            detail=details[index].as_py(),
            text=row["text"][:_HEAD_CHARACTERS],
        )
