"""Agreement: how often a native rule and datatrove's decide alike on the same documents, rule by rule.

    documents ─┬─▶ native family, every rule on its own ──────────────────────┬─▶ a row a rule ─▶ Report
               └─▶ datatrove's filter with all other thresholds switched off ─┘

datatrove names only the first check that fails, so each of its checks is run alone. "Drop" means that a rule acts: on
a document, or for C4's rules of lines, on at least one line of it.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich.table import Table

from tokenmill_core.manifest import Frozen
from tokenmill_corpus.agreement.pairs import Pair, pairs
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.datatrove import DatatroveFilter, run_filter
from tokenmill_corpus.filters.family import Family, Outcome

MAX_EXAMPLES = 5
"""Documents named for each rule and side."""

_ODD_DOCUMENTS = ("empty", "error")
"""datatrove's reasons for documents on which a check could not be made: a drop, whichever check it was."""


class Row(Frozen):
    """Documents by what the two sides say of one rule."""

    rule: str
    """`<family>.<setting>`."""
    datatrove: str
    """`<filter>.<reason>`."""
    both_keep: int
    both_drop: int
    only_native: int
    """Documents that the native rule alone drops."""
    only_datatrove: int
    only_native_examples: tuple[str, ...]
    """Some of them: their ids, or file and row where they have none."""
    only_datatrove_examples: tuple[str, ...]

    @property
    def agreement(self) -> float:
        """Share of documents decided alike; 1 where there are none."""
        alike = self.both_keep + self.both_drop
        documents = alike + self.only_native + self.only_datatrove
        return alike / documents if documents else 1.0


class Report(Frozen):
    """A row for each pair of rules."""

    documents: int
    bytes: int
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, Any]:
        """The report as plain values, each row with its agreement."""
        rows = [{**row.model_dump(mode="json"), "agreement": round(row.agreement, 6)} for row in self.rows]
        return {"documents": self.documents, "bytes": self.bytes, "rows": rows}

    def table(self) -> Table:
        """The report to look at."""
        table = Table(title=f"Native and datatrove on {self.documents:,} documents, {self.bytes / 1e6:,.1f} MB")
        table.add_column("rule")
        table.add_column("datatrove")
        for heading in ("both keep", "both drop", "only native", "only datatrove", "agreement"):
            table.add_column(heading, justify="right")
        for row in self.rows:
            counts = (row.both_keep, row.both_drop, row.only_native, row.only_datatrove)
            table.add_row(row.rule, row.datatrove, *(f"{count:,}" for count in counts), f"{100 * row.agreement:.2f} %")
        return table


def agreement(batches: Iterable[pa.RecordBatch]) -> Report:
    """Compare the native rules with datatrove's, both with the published thresholds, on the documents of all batches.

    A megabyte takes about 25 seconds, which datatrove's tokenizer spends.
    """
    compared = pairs()
    ours, theirs, names, num_bytes = [], [], [], 0
    with _tokenized_once():
        for batch in batches:
            documents = Documents(batch)
            ours.append(_native_acts(compared, documents))
            theirs.append(_datatrove_acts(compared, batch))
            names += _names(batch)
            num_bytes += int(documents.text.num_bytes.sum())
    none = np.empty((len(compared), 0), np.bool_)
    sides = zip(compared, np.concatenate([none, *ours], axis=1), np.concatenate([none, *theirs], axis=1), strict=True)
    rows = [_row(pair, native, datatrove, names) for pair, native, datatrove in sides]
    return Report(documents=len(names), bytes=num_bytes, rows=tuple(rows))


def _row(pair: Pair, ours: NDArray[np.bool_], theirs: NDArray[np.bool_], names: Sequence[str]) -> Row:
    only_native, only_datatrove = np.flatnonzero(ours & ~theirs), np.flatnonzero(theirs & ~ours)
    return Row(
        rule=pair.name,
        datatrove=pair.datatrove_name,
        both_keep=int((~ours & ~theirs).sum()),
        both_drop=int((ours & theirs).sum()),
        only_native=len(only_native),
        only_datatrove=len(only_datatrove),
        only_native_examples=tuple(names[d] for d in only_native[:MAX_EXAMPLES]),
        only_datatrove_examples=tuple(names[d] for d in only_datatrove[:MAX_EXAMPLES]),
    )


def _native_acts(compared: Sequence[Pair], documents: Documents) -> NDArray[np.bool_]:
    """(pairs, documents): whether the native rule acts."""
    outcomes: dict[Family, Outcome] = {}
    acts = []
    for pair in compared:
        if pair.family not in outcomes:
            outcomes[pair.family] = pair.family.apply(documents)
        acts.append(_acts(outcomes[pair.family], pair.rule))
    return np.stack(acts)


def _acts(outcome: Outcome, name: str) -> NDArray[np.bool_]:
    for rule in outcome.rules:
        if rule.setting == name:
            return rule.breaks
    assert outcome.edit is not None, name
    return outcome.edit.count[name] > 0


def _datatrove_acts(compared: Sequence[Pair], batch: pa.RecordBatch) -> NDArray[np.bool_]:
    """(pairs, documents): whether datatrove's check acts. Document by document, so that each is tokenized once."""
    acts = np.zeros((len(compared), batch.num_rows), np.bool_)
    for d, text in enumerate(batch.column("text").to_pylist()):
        outcomes: dict[str, tuple[str | None, str]] = {}
        for p, pair in enumerate(compared):
            reason, left = _outcome(pair.datatrove, text)
            if pair.baseline is None:
                acts[p, d] = reason is not None and reason.rpartition(".")[2] in (pair.reason, *_ODD_DOCUMENTS)
                continue
            key = pair.baseline.name
            if key not in outcomes:
                outcomes[key] = _outcome(pair.baseline, text)
            acts[p, d] = left != outcomes[key][1]
    return acts


def _outcome(which: DatatroveFilter, text: str) -> tuple[str | None, str]:
    """(why it would go, or none; what is left of it)."""
    [(reason, left)] = run_filter(which, [text])
    return reason, left


def _names(batch: pa.RecordBatch) -> list[str]:
    columns = (batch.column(name).to_pylist() for name in ("id", "file", "row"))
    return [f"{file}:{row}" if key is None else key for key, file, row in zip(*columns, strict=True)]


@contextmanager
def _tokenized_once() -> Iterator[None]:
    """Let datatrove's English tokenizer remember the last text, which every one of its checks splits again."""
    from datatrove.utils.word_tokenizers import load_word_tokenizer

    tokenizer = load_word_tokenizer("en")
    tokenizer.word_tokenize = lru_cache(maxsize=1)(tokenizer.word_tokenize)
    try:
        yield
    finally:
        del tokenizer.word_tokenize
