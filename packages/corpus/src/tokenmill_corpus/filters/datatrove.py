"""datatrove's own filters, by name, in the order they are given.

    [[filter.datatrove.filters]]
    name = "GopherQualityFilter"
    min_stop_words = 0

Beside `name`, everything is an argument of the filter's constructor. A document carries its other columns as metadata.
The reason of a drop is `<filter>.<reason that datatrove gives>`; a document that a filter divides by zero on goes for
`<filter>.error`. A filter that changes texts (C4) makes an edit, its bytes under the filter's name.

Left out: `SamplerFilter`, whose sample depends on the order of documents (see `sampling`).
"""

import difflib
import importlib
import inspect
import json
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from tokenmill_core.compiled.text_buffers import TextBuffers, column_buffers
from tokenmill_core.errors import ConfigError, InputError
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Edit, Family, Outcome, not_flagged

_MODULE = "datatrove.pipeline.filters"
_LEFT_OUT = {"SamplerFilter": "its sample depends on the order of documents; use the family `sampling`"}


class DatatroveFilter(BaseModel):
    """One of datatrove's filters: its name, and the arguments of its constructor."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True, extra="allow")

    name: str
    """A class of `datatrove.pipeline.filters`, or the dotted path of any other filter."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Of the constructor."""
        return dict(self.model_extra or {})

    @property
    def short_name(self) -> str:
        """The name without a path, as reasons have it."""
        return self.name.rpartition(".")[2]


FINEWEB_FILTERS = (
    DatatroveFilter(name="GopherRepetitionFilter"),
    DatatroveFilter(name="GopherQualityFilter"),
    DatatroveFilter.model_validate({"name": "C4QualityFilter", "filter_no_terminal_punct": False}),
    DatatroveFilter(name="FineWebQualityFilter"),
)
"""The quality filters of FineWeb, in its order: C4 without the rule about lines that end without punctuation."""


class Datatrove(Family):
    """Run datatrove's filters."""

    edits: ClassVar[bool] = True

    has_scores: ClassVar[bool] = False

    filters: tuple[DatatroveFilter, ...] = FINEWEB_FILTERS
    """Which ones, in order: a document that one drops is not shown to the next."""

    def apply(self, documents: Documents) -> Outcome:
        """A rule for each filter and reason that dropped something; the edit where texts were changed."""
        texts = documents.batch.column("text").to_pylist()
        shown = _datatrove_documents(documents.batch, texts)
        reasons: dict[str, list[int]] = {}
        removed, count = {}, {}
        rows = list(range(len(documents)))
        for which in self.filters:
            before = {row: shown[row].text for row in rows}
            verdicts = list(_verdicts(which, [shown[row] for row in rows]))
            for row, reason in zip(rows, verdicts, strict=True):
                if reason is not None:
                    reasons.setdefault(reason, []).append(row)
            rows = [row for row, reason in zip(rows, verdicts, strict=True) if reason is None]
            changed = [row for row in rows if shown[row].text != before[row]]
            if changed:
                removed[which.short_name] = _placed(
                    changed, [_size(before[row]) - _size(shown[row].text) for row in changed], len(documents)
                )
                count[which.short_name] = _placed(changed, [1] * len(changed), len(documents))
        rules = [not_flagged(reason, _placed(hit, [1] * len(hit), len(documents))) for reason, hit in reasons.items()]
        return Outcome(rules=rules, edit=_edit(documents.text, texts, rows, shown, removed, count) if removed else None)

    def distributions(self) -> tuple[str, ...]:
        """datatrove, and what splits words for it."""
        return ("datatrove", "spacy")

    def check(self) -> None:
        """Every filter is there and takes its arguments."""
        for which in self.filters:
            make_filter(which)


def run_filter(which: DatatroveFilter, texts: list[str]) -> list[tuple[str | None, str]]:
    """For each text why it would go, `<filter>.<reason>`, or none where it stays; and what the filter leaves of it."""
    from datatrove.data import Document

    shown = [Document(text=text, id="") for text in texts]
    return [(reason, document.text) for reason, document in zip(_verdicts(which, shown), shown, strict=True)]


def make_filter(which: DatatroveFilter) -> Any:
    """The filter itself, one for each process; `ConfigError` naming the setting where it cannot be made."""
    try:
        arguments = json.dumps(which.arguments)
    except TypeError as error:
        raise ConfigError(
            f"datatrove.filters: {which.name}: {error}; arguments are numbers, text, and lists"
        ) from error
    return _make_filter(which.name, arguments)


@lru_cache(maxsize=128)
def _make_filter(name: str, arguments: str) -> Any:
    constructor = _constructor(name)
    values = json.loads(arguments)
    known = [argument for argument in inspect.signature(constructor).parameters if argument != "exclusion_writer"]
    for argument in values:
        if argument not in known:
            raise ConfigError(f"datatrove.filters: {name} has no argument {argument!r}{_nearest(argument, known)}")
    try:
        made = constructor(**values)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"datatrove.filters: {name} refuses {arguments}: {error}") from error
    if hasattr(made, "tldextractor"):
        from tldextract import TLDExtract

        made.tldextractor = TLDExtract(suffix_list_urls=())  # else it looks for a newer list on the network
    return made


def _constructor(name: str) -> Any:
    path, _, short_name = name.rpartition(".")
    if short_name in _LEFT_OUT and path in ("", _MODULE):
        raise ConfigError(f"datatrove.filters: {name} is left out: {_LEFT_OUT[short_name]}")
    try:
        filters = importlib.import_module(_MODULE)
        base = importlib.import_module(f"{_MODULE}.base_filter").BaseFilter
    except ImportError as error:
        raise ConfigError(
            f"datatrove.filters need datatrove: pip install 'tokenmill-corpus[datatrove]' ({error})"
        ) from error
    try:
        found = getattr(importlib.import_module(path) if path else filters, short_name, None)
    except ImportError as error:
        raise ConfigError(f"datatrove.filters: cannot import {path!r} of {name!r}: {error}") from error
    if not (inspect.isclass(found) and issubclass(found, base)):
        known = [key for key, value in vars(filters).items() if inspect.isclass(value)]
        raise ConfigError(f"datatrove.filters: there is no filter {name!r}{_nearest(short_name, known)}")
    return found


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"


def _datatrove_documents(batch: pa.RecordBatch, texts: list[str]) -> list[Any]:
    from datatrove.data import Document

    names = [name for name in batch.schema.names if name not in ("id", "text")]
    columns = [batch.column(name).to_pylist() for name in names]
    rows = zip(*columns, strict=True) if columns else ((),) * len(texts)
    metadata = [{k: v for k, v in zip(names, row, strict=True) if v is not None} for row in rows]
    ids = batch.column("id").to_pylist()
    return [Document(text=t, id=i or "", metadata=m) for t, i, m in zip(texts, ids, metadata, strict=True)]


def _verdicts(which: DatatroveFilter, documents: list[Any]) -> Iterator[str | None]:
    """For each document why it goes, `<filter>.<reason>`, or none where it stays; texts may be changed on the way."""
    made = make_filter(which)
    for start in range(0, len(documents), made.batch_size):
        for verdict in _filter_batch(which, made, documents[start : start + made.batch_size]):
            keep, reason = verdict if isinstance(verdict, tuple) else (verdict, None)
            yield None if keep else f"{which.short_name}.{reason}" if reason else which.short_name


def _filter_batch(which: DatatroveFilter, made: Any, documents: list[Any]) -> list[Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # means of no words, and calls that its own dependencies deprecate
            return list(made.filter_batch(documents))
    except ZeroDivisionError:
        if len(documents) > 1:
            return [verdict for document in documents for verdict in _filter_batch(which, made, [document])]
        return [(False, "error")]
    except Exception as error:
        ids = ", ".join(repr(document.id) for document in documents[:3])
        raise InputError(f"datatrove.filters: {which.name} failed on document {ids}: {error!r}") from error


def _placed(rows: list[int], values: list[int], length: int) -> Any:
    placed = np.zeros(length, np.int64)
    placed[rows] = values
    return placed


def _size(text: str) -> int:
    return len(text.encode())


def _edit(
    old: TextBuffers,
    texts: list[str],
    kept: list[int],
    shown: list[Any],
    removed: Mapping[str, Any],
    count: Mapping[str, Any],
) -> Edit:
    """New texts for what was kept; what is dropped stays as it came."""
    for row in kept:
        texts[row] = shown[row].text
    dropped = np.ones(len(old), np.bool_)
    dropped[kept] = False
    text = column_buffers(pa.array(texts, pa.large_string()))
    return Edit(
        text,
        {what: np.where(dropped, 0, values) for what, values in removed.items()},
        {what: np.where(dropped, 0, values) for what, values in count.items()},
    )
