"""A report on the terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from tokenmill_tokenizer.report.result import Measure, Report, SourceText, Token, VocabularyReport
from tokenmill_tokenizer.report.spelling import (
    brief,
    megabytes,
    number,
    percent,
    reason_name,
    round_trip,
    sampling,
    source_name,
)

NUM_TOKENS = 10
"""Longest tokens in the table."""
NUM_EXAMPLES = 5
"""Suspicious tokens in the table, for each reason."""


def print_report(report: Report, console: Console) -> None:
    """Print the tables; of the longest and the suspicious tokens those of the first tokenizer alone."""
    console.print(_vocabularies(report.tokenizers))
    if report.measures:
        console.print(sampling(report))
        console.print(_sources(report.sources))
        console.print(_measures(report))
    for line in _failures(report.measures):
        console.print(line, soft_wrap=True)
    vocabulary = report.tokenizers[0]
    console.print(_longest(vocabulary))
    console.print(_suspicious(vocabulary))


def _table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    """A table with columns of words, then columns of numbers."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in left:
        table.add_column(heading, overflow="fold")
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _vocabularies(vocabularies: Sequence[VocabularyReport]) -> Table:
    headings = ("vocabulary", "padded", "special", "parts of characters", "longest, bytes", "sha256")
    table = _table("Tokenizers", ("tokenizer",), headings)
    for one in vocabularies:
        numbers = (
            one.vocab_size,
            one.padded_vocab_size,
            one.special_tokens,
            one.partial_tokens,
            max(0, len(one.lengths) - 1),
        )
        table.add_row(one.tokenizer, *(f"{value:,}" for value in numbers), one.sha256[:12])
    return table


def _sources(sources: Sequence[SourceText]) -> Table:
    table = _table("Sources", ("source",), ("documents", "text", "measured", "text measured", "rows left out"))
    for one in sources:
        sizes = (f"{one.documents:,}", megabytes(one.bytes), f"{one.sampled_documents:,}", megabytes(one.sampled_bytes))
        table.add_row(one.name, *sizes, f"{sum(one.dropped.values()):,}")
    return table


def _measures(report: Report) -> Table:
    several, by = len(report.tokenizers) > 1, report.by
    left = ("source", *([by] if by else []), *(["tokenizer"] if several else []))
    numbers = ("documents", "text", "tokens", "bytes/token", "tokens/word")
    shares = ("vocabulary used", "never used", "single bytes", "parts of characters", "round trip")
    table = _table("Measures", left, (*numbers, *shares))
    name = report.tokenizers[-1].tokenizer
    for one in report.measures:
        words = (source_name(one), *([one.group or ""] if by else []), *([one.tokenizer] if several else []))
        table.add_row(*words, *_numbers(one), end_section=several and one.tokenizer == name)
    return table


def _numbers(one: Measure) -> tuple[str, ...]:
    unused = None if one.used_share is None else 1 - one.used_share
    return (
        f"{one.documents:,}",
        megabytes(one.bytes),
        f"{one.tokens:,}",
        number(one.bytes_per_token),
        number(one.tokens_per_word),
        percent(one.used_share),
        percent(unused),
        percent(one.single_byte_share),
        percent(one.partial_share),
        round_trip(one),
    )


def _failures(measures: Sequence[Measure]) -> Iterator[str]:
    for one in measures:
        if one.round_trip_failures and one.group is None and one.source is not None:
            yield f"{one.tokenizer} on {one.source}: {round_trip(one)} once decoded, such as {one.first_failure}"


def _longest(vocabulary: VocabularyReport) -> Table:
    table = _table(f"Longest tokens of {vocabulary.tokenizer}", ("token",), ("id", "bytes", "characters", "count"))
    tokens = dict.fromkeys((*vocabulary.longest_by_bytes[:NUM_TOKENS], *vocabulary.longest_by_characters[:NUM_TOKENS]))
    for token in tokens:
        characters = number(token.characters, 0)
        table.add_row(brief(token), str(token.id), f"{token.bytes:,}", characters, number(token.count, 0))
    return table


def _suspicious(vocabulary: VocabularyReport) -> Table:
    table = _table(f"Worth a look in {vocabulary.tokenizer}", ("reason", "what it means"), ("tokens",))
    table.add_column("such as", overflow="fold")
    for one in vocabulary.suspicious:
        shown = "  ".join(map(_example, one.tokens[:NUM_EXAMPLES]))
        table.add_row(reason_name(one.reason), one.meaning, f"{one.count:,}", shown)
    return table


def _example(token: Token) -> str:
    return f"{brief(token)} ({token.id})"
