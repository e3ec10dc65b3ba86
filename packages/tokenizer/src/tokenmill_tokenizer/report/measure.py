"""Measuring: every tokenizer on the same batches.

source ─▶ batch ─┬─▶ words, bytes, group of each document ───────────────────────┐
                 └─▶ for each tokenizer: ids ─▶ counts, what is used, round trip ─┴─▶ a measure a group
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import text_buffers
from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers import ReadOptions
from tokenmill_tokenizer.report.result import Measure, SourceText
from tokenmill_tokenizer.report.sources import Source, read_source
from tokenmill_tokenizer.report.subject import Subject
from tokenmill_tokenizer.report.tally import FAILURES, PARTIAL, SINGLE_BYTES, TOKENS, Tally
from tokenmill_tokenizer.report.words import count_words

MAX_GROUPS = 256
NO_VALUE = "(none)"
"""Group of the documents that the column says nothing of."""

DOCUMENTS, BYTES, WORDS = range(3)
"""Columns of `Measured.sums`."""


@dataclass
class Measured:
    """One source, and what each tokenizer makes of it."""

    source: Source
    tallies: list[Tally]
    first_failures: list[dict[int, str]]
    """For each tokenizer, and each group that has one, a document that does not come back."""
    groups: dict[str, int] = field(default_factory=dict)
    """Row of each group in `sums` and in the tallies."""
    sums: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    """(groups, 3): documents, bytes, words."""
    account: Account = field(default_factory=Account)

    def text(self) -> SourceText:
        """What was read."""
        dropped = {row.reason: row.documents for row in self.account.ledger()}
        documents, num_bytes, _ = self.sums.sum(axis=0).tolist()
        return SourceText(
            name=self.source.name,
            documents=self.account.documents - sum(dropped.values()),
            bytes=self.account.bytes - sum(row.bytes for row in self.account.ledger()),
            sampled_documents=documents,
            sampled_bytes=num_bytes,
            dropped=dropped,
        )


def measure_source(
    source: Source, subjects: Sequence[Subject], options: ReadOptions, by: str | None, sample_bytes: int
) -> Measured:
    """Read `source` once and encode it with every tokenizer.

    Errors: `InputError` for what cannot be read, and a `by` column that no document has or with too many values.
    """
    measured = Measured(source, [Tally(subject.vocabulary) for subject in subjects], [{} for _ in subjects])
    for batch in read_source(source, options, sample_bytes, measured.account):
        groups = _groups(batch, by, measured)
        text = text_buffers(batch)
        columns = (np.ones(len(text)), text.num_bytes, count_words(text))
        sums = [np.bincount(groups, column, minlength=len(measured.groups)) for column in columns]
        more = len(measured.groups) - len(measured.sums)
        measured.sums = np.pad(measured.sums, ((0, more), (0, 0))) + np.stack(sums, axis=1).astype(np.int64)
        for subject, tally, failures in zip(subjects, measured.tallies, measured.first_failures, strict=True):
            if not tally.num_documents:
                subject.encoder.prove_on(batch.column("text"))
            ids, lengths = subject.encoder.encode(batch.column("text"))
            fails = subject.fails(batch.column("text"), ids, lengths)
            tally.add(ids, lengths, groups, fails)
            _remember(batch, groups, fails, failures)
    if by is not None and measured.groups.keys() == {NO_VALUE}:
        raise InputError(f"source {source.name!r}: no document has a {by!r}; name another column with --by")
    return measured


def _groups(batch: pa.RecordBatch, by: str | None, measured: Measured) -> NDArray[np.int64]:
    """Row of each document's group."""
    if by is None:
        measured.groups[""] = 0
        return np.zeros(batch.num_rows, np.int64)
    column = batch.column(by).cast(pa.string()).fill_null(NO_VALUE).dictionary_encode()
    for value in column.dictionary.to_pylist():
        measured.groups.setdefault(value, len(measured.groups))
    if len(measured.groups) > MAX_GROUPS:
        raise InputError(
            f"source {measured.source.name!r}: {by!r} has more than {MAX_GROUPS} values; "
            "name a column with fewer with --by, such as the language"
        )
    rows = np.array([measured.groups[value] for value in column.dictionary.to_pylist()], np.int64)
    indices: NDArray[np.int32] = column.indices.to_numpy()
    return rows[indices]


def _remember(
    batch: pa.RecordBatch, groups: NDArray[np.int64], fails: NDArray[np.bool_], failures: dict[int, str]
) -> None:
    rows, first = np.unique(groups[fails], return_index=True)
    for group, index in zip(rows.tolist(), np.flatnonzero(fails)[first].tolist(), strict=True):
        failures.setdefault(group, f"{batch.column('file')[index]}:{batch.column('row')[index]}")


def measures_of(measured: Sequence[Measured], subjects: Sequence[Subject], by: str | None) -> list[Measure]:
    """All sources together where there are several, then each one, then its groups by name; for every tokenizer."""
    rows = [_all_of(measured)] if len(measured) > 1 else []
    for one in measured:
        rows.append(_Text(one.source.name, None, [(one, list(range(len(one.sums))))]))
        if by is not None:
            rows += [_Text(one.source.name, name, [(one, [row])]) for name, row in sorted(one.groups.items())]
    return [_measure(row, index, subject) for row in rows for index, subject in enumerate(subjects)]


@dataclass(frozen=True)
class _Text:
    """What a measure is about: groups of sources."""

    source: str | None
    group: str | None
    parts: list[tuple[Measured, list[int]]]


def _all_of(measured: Sequence[Measured]) -> _Text:
    return _Text(None, None, [(one, list(range(len(one.sums)))) for one in measured])


def _measure(text: _Text, index: int, subject: Subject) -> Measure:
    documents, num_bytes, words = sum(one.sums[rows].sum(axis=0) for one, rows in text.parts).tolist()
    found = sum(one.tallies[index].sums[rows].sum(axis=0) for one, rows in text.parts).tolist()
    ordinary = subject.vocabulary.ordinary
    used = np.zeros(len(ordinary), np.bool_)
    for one, rows in text.parts:
        used |= one.tallies[index].used[rows].any(axis=0)
    num_used = int((used & ordinary).sum())
    failures = [
        one.first_failures[index][row] for one, rows in text.parts for row in rows if row in one.first_failures[index]
    ]
    return Measure(
        tokenizer=subject.name,
        source=text.source,
        group=text.group,
        documents=documents,
        bytes=num_bytes,
        words=words,
        tokens=found[TOKENS],
        bytes_per_token=_ratio(num_bytes, found[TOKENS]),
        tokens_per_word=_ratio(found[TOKENS], words),
        used=num_used,
        used_share=_ratio(num_used, int(ordinary.sum())),
        single_byte_share=_ratio(found[SINGLE_BYTES], found[TOKENS]),
        partial_share=_ratio(found[PARTIAL], found[TOKENS]),
        round_trip_failures=found[FAILURES],
        first_failure=failures[0] if failures else None,
    )


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None
