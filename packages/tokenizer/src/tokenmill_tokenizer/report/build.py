"""Putting a report together."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.config import validate_config
from tokenmill_core.documents import DOCUMENT_SCHEMA
from tokenmill_core.readers import ReadOptions
from tokenmill_tokenizer.report.measure import Measured, measure_source, measures_of
from tokenmill_tokenizer.report.result import Points, Report, Token, VocabularyReport
from tokenmill_tokenizer.report.sources import open_sources, refuse_twice
from tokenmill_tokenizer.report.subject import Subject, open_subject
from tokenmill_tokenizer.report.suspicious import Usage, describe_token, find_suspicious

NUM_LONGEST = 20
POINTS_PER_CURVE = 80


def build_report(
    tokenizers: Sequence[str],
    inputs: Sequence[str],
    options: ReadOptions,
    *,
    by: str | None = None,
    sample_bytes: int = 64 << 20,
) -> Report:
    """Measure `tokenizers`, the first of which the report is about, on `inputs`; each is a path or NAME=PATH.

    At most `sample_bytes` of each input's text are measured, chosen by a hash of the texts; 0: all of it. `by` names
    a column whose values break every source down.

    Errors: `InputError` and `ConfigError` for what cannot be read, or is named twice.
    """
    subjects = [open_subject(argument) for argument in tokenizers]
    refuse_twice("tokenizer", [subject.name for subject in subjects])
    if by is not None and by not in (*options.carry, *DOCUMENT_SCHEMA.names):
        options = validate_config(ReadOptions, options.model_dump() | {"carry": (*options.carry, by)}, "by")
    sources = open_sources(inputs, options)
    measured = [measure_source(source, subjects, options, by, sample_bytes) for source in sources]
    return Report(
        sample_bytes=sample_bytes,
        by=by,
        sources=tuple(one.text() for one in measured),
        tokenizers=tuple(_vocabulary(subject, _usage(measured, index)) for index, subject in enumerate(subjects)),
        measures=tuple(measures_of(measured, subjects, by)),
    )


def _usage(measured: Sequence[Measured], index: int) -> Usage | None:
    if not measured:
        return None
    tallies = [one.tallies[index] for one in measured]
    return Usage(sum(tally.counts for tally in tallies), sum(tally.documents for tally in tallies))  # type: ignore[arg-type]


def _vocabulary(subject: Subject, usage: Usage | None) -> VocabularyReport:
    vocabulary = subject.vocabulary
    ordinary, num_bytes = vocabulary.ordinary, vocabulary.num_bytes
    counts = None if usage is None else usage.counts
    ranked = np.sort(counts[counts > 0])[::-1] if counts is not None else np.empty(0, np.int64)
    characters = np.array([len(text or "") for text in vocabulary.texts], np.int64)
    return VocabularyReport(
        tokenizer=subject.name,
        sha256=subject.opened.sha256,
        vocab_size=subject.opened.vocab_size,
        padded_vocab_size=subject.opened.padded_vocab_size,
        ordinary_tokens=int(ordinary.sum()),
        special_tokens=int(vocabulary.special.sum()),
        partial_tokens=int(vocabulary.partial.sum()),
        byte_level=vocabulary.byte_level,
        lengths=tuple(np.bincount(num_bytes[ordinary]).tolist()),
        lengths_in_text=() if counts is None else tuple(np.bincount(num_bytes, counts).astype(np.int64).tolist()),
        rank_frequency=_curve(ranked),
        coverage=_curve(np.cumsum(ranked) / max(1, ranked.sum())),
        longest_by_bytes=_longest(subject, usage, num_bytes),
        longest_by_characters=_longest(subject, usage, characters),
        suspicious=find_suspicious(subject, usage),
    )


def _curve(values: NDArray[np.int64] | NDArray[np.float64]) -> Points:
    """Points of `values`, counted from 1, evenly apart on a logarithmic scale."""
    if not len(values):
        return ()
    places = np.unique(np.geomspace(1, len(values), POINTS_PER_CURVE).round().astype(np.int64))
    return tuple((place, round(float(values[place - 1]), 6)) for place in places.tolist())


def _longest(subject: Subject, usage: Usage | None, lengths: NDArray[np.int64]) -> tuple[Token, ...]:
    ordinary = np.flatnonzero(subject.vocabulary.ordinary)
    first = ordinary[np.argsort(-lengths[ordinary], kind="stable")][:NUM_LONGEST]
    return tuple(describe_token(subject.vocabulary, usage, index) for index in first.tolist())
