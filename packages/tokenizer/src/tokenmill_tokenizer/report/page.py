"""A report as one HTML page that needs nothing beside itself.

Everything from data is escaped: tokens and names can hold markup.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from tokenmill_tokenizer.report import plots
from tokenmill_tokenizer.report.result import Measure, Report, Token, VocabularyReport
from tokenmill_tokenizer.report.spelling import (
    brief,
    megabytes,
    number,
    percent,
    reason_name,
    round_trip,
    sampling,
    source_name,
    text_name,
)
from tokenmill_tokenizer.report.style import STYLE

_DEFINITIONS = """Bytes per token: UTF-8 bytes of the text over its tokens. It compares tokenizers on one text:
languages differ in the bytes of a character. Words stand between white space and hold a letter or a number; in scripts
written without spaces every letter is one. Shares of the vocabulary are of its ordinary tokens, without the special
ones. The round trip is exact where decoding the ids of a document gives its text. Tokens are written as Python
literals, a long run in them as x⟨×80⟩."""


def make_page(report: Report) -> str:
    """The page. The same report gives the same text."""
    title = f"Tokenizer report: {report.tokenizers[0].tokenizer}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(_subtitle(report))}</p>",
        _facts(report),
        *(_compression(report) if report.measures else ()),
        *_vocabularies(report),
        *(part for one in report.tokenizers for part in _tokens(one)),
        f"<footer><p>{_DEFINITIONS}</p></footer>",
    ]
    head = (
        f'<meta charset="utf-8">\n<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>'
    )
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n<style>{STYLE}</style>\n</head>\n'
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _subtitle(report: Report) -> str:
    others = [one.tokenizer for one in report.tokenizers[1:]]
    beside = f"Beside {', '.join(others)}. " if others else ""
    return beside + (sampling(report) if report.measures else "No text was measured: what the vocabulary itself says.")


def _facts(report: Report) -> str:
    vocabulary = report.tokenizers[0]
    facts = [("ids", f"{vocabulary.vocab_size:,}")]
    if report.measures:
        whole = report.measures[0]  # all sources, or the only one
        facts += [
            ("bytes per token", number(whole.bytes_per_token)),
            ("tokens per word", number(whole.tokens_per_word)),
            ("of the vocabulary used", percent(whole.used_share)),
            ("documents", f"{whole.documents:,}"),
            ("round trip", round_trip(whole)),
        ]
    else:
        facts += [
            ("special", f"{vocabulary.special_tokens:,}"),
            ("parts of characters", f"{vocabulary.partial_tokens:,}"),
        ]
    items = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{items}</dl>'


def _compression(report: Report) -> Iterator[str]:
    yield "<h2>Compression</h2>"
    yield _legend(report)
    yield _figure("Bytes per token by source and tokenizer", plots.bytes_per_token(report))
    if len(report.tokenizers) > 1:
        yield _comparison(report)
    yield "<h2>Measures</h2>"
    yield _measures(report)
    yield from _failures(report)
    yield "<h3>Sources</h3>"
    yield _sources(report)


def _legend(report: Report) -> str:
    if len(report.tokenizers) == 1:
        return ""
    items = (
        f'<li><i style="background:{plots.colour(index)}"></i>{escape(one.tokenizer)}</li>'
        for index, one in enumerate(report.tokenizers)
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _figure(label: str, svg: str) -> str:
    return f'<figure role="img" aria-label="{escape(label)}">{svg}</figure>'


def _comparison(report: Report) -> str:
    """Tokens that each tokenizer needs for each text, against the first."""
    names = [one.tokenizer for one in report.tokenizers]
    rows = []
    for start in range(0, len(report.measures), len(names)):
        first, *others = report.measures[start : start + len(names)]
        cells = [f"{first.tokens:,}", *(_difference(one, first) for one in others)]
        rows.append(_tr([escape(text_name(first))], cells, whole=bool(report.by) and first.group is None))
    return _table(["tokens"], names, rows)


def _difference(one: Measure, first: Measure) -> str:
    change = f" ({100 * (one.tokens / first.tokens - 1):+.1f} %)".replace("-", "−") if first.tokens else ""
    return f"{one.tokens:,}{change}"


def _measures(report: Report) -> str:
    several = len(report.tokenizers) > 1
    left = ["source", *([report.by] if report.by else []), *(["tokenizer"] if several else [])]
    right = [
        "documents",
        "text",
        "tokens",
        "bytes per token",
        "tokens per word",
        "vocabulary used",
        "never used",
        "single bytes",
        "parts of characters",
    ]
    rows, before = [], ""
    for one in report.measures:
        # A text is named once, in the row of the first tokenizer.
        names = [source_name(one), *([one.group or ""] if report.by else [])]
        words = ([""] * len(names) if text_name(one) == before else names) + ([one.tokenizer] if several else [])
        before = text_name(one)
        whole = bool(report.by) and one.group is None
        rows.append(_tr(map(escape, words), _numbers(one), whole=whole, end=_came_back(one)))
    return _table(left, right, rows, end="round trip")


def _numbers(one: Measure) -> list[str]:
    return [
        f"{one.documents:,}",
        megabytes(one.bytes),
        f"{one.tokens:,}",
        number(one.bytes_per_token),
        number(one.tokens_per_word),
        percent(one.used_share),
        percent(None if one.used_share is None else 1 - one.used_share),
        percent(one.single_byte_share),
        percent(one.partial_share),
    ]


def _came_back(one: Measure) -> str:
    return f'<td class="k{" bad" if one.round_trip_failures else ""}">{round_trip(one)}</td>'


def _failures(report: Report) -> Iterator[str]:
    """For each source and tokenizer, a document that does not come back."""
    failed = [one for one in report.measures if one.first_failure and one.source and one.group is None]
    if failed:
        yield "<h3>Documents that differ once decoded</h3>"
        rows = [
            _tr(
                map(escape, (source_name(one), one.tokenizer)),
                [f"{one.round_trip_failures:,}", f"{one.documents:,}"],
                end=f"<td><code>{escape(one.first_failure or '')}</code></td>",
            )
            for one in failed
        ]
        yield _table(["source", "tokenizer"], ["documents", "of"], rows, end="such as")


def _sources(report: Report) -> str:
    rows = [
        _tr(
            [escape(one.name)],
            [
                f"{one.documents:,}",
                megabytes(one.bytes),
                f"{one.sampled_documents:,}",
                megabytes(one.sampled_bytes),
                f"{sum(one.dropped.values()):,}",
            ],
        )
        for one in report.sources
    ]
    return _table(["source"], ["documents", "text", "measured", "text measured", "rows left out"], rows)


def _vocabularies(report: Report) -> Iterator[str]:
    yield "<h2>Vocabulary</h2>"
    yield _legend(report)
    yield _table(
        ["tokenizer"],
        ["ids", "padded", "special", "parts of characters", "longest, bytes"],
        [
            _tr(
                [escape(one.tokenizer)],
                [
                    f"{value:,}"
                    for value in (
                        one.vocab_size,
                        one.padded_vocab_size,
                        one.special_tokens,
                        one.partial_tokens,
                        max(0, len(one.lengths) - 1),
                    )
                ],
                end=f'<td class="k"><code>{one.sha256[:12]}</code></td>',
            )
            for one in report.tokenizers
        ],
        end="sha256",
    )
    yield "<h3>Length of tokens</h3>"
    if any(one.lengths for one in report.tokenizers):
        yield _figure("Share of tokens by length in bytes", plots.token_lengths(report))
    else:
        yield "<p>Nothing to draw: the vocabulary has no ordinary token.</p>"
    if report.measures:
        yield "<h3>Use</h3>"
        if any(one.rank_frequency for one in report.tokenizers):
            yield _figure("Frequency by rank, and coverage of the text", plots.use(report))
        else:
            yield "<p>Nothing to draw: no token occurs in what was measured.</p>"


def _tokens(vocabulary: VocabularyReport) -> Iterator[str]:
    yield f"<h2>Tokens of {escape(vocabulary.tokenizer)}</h2>"
    yield "<p>What is worth a look. Many finds are harmless: it is for a person to judge.</p>"
    longest = (
        ("longest by bytes", "the longest ordinary tokens", vocabulary.longest_by_bytes),
        ("longest by characters", "the longest of whole characters", vocabulary.longest_by_characters),
    )
    for name, meaning, tokens in longest:
        yield _folded(name, meaning, len(tokens), tokens)
    for one in vocabulary.suspicious:
        yield _folded(reason_name(one.reason), one.meaning, one.count, one.tokens)


def _folded(name: str, meaning: str, count: int, tokens: Sequence[Token]) -> str:
    summary = f"<summary><b>{escape(name)}</b><span>{escape(meaning)}</span><em>{count:,}</em></summary>"
    if not tokens:
        return f'<details class="none">{summary}</details>'
    rows = [
        _tr(
            [f"<code>{escape(brief(token))}</code>"],
            [str(token.id), f"{token.bytes:,}", number(token.characters, 0), number(token.count, 0)],
            end=f"<td>{escape(token.detail)}</td>",
        )
        for token in tokens
    ]
    more = f"<p>And {count - len(tokens):,} more.</p>" if count > len(tokens) else ""
    return (
        f"<details>{summary}{_table(['token'], ['id', 'bytes', 'characters', 'count'], rows, end='')}{more}</details>"
    )


def _table(left: Iterable[str], right: Iterable[str], rows: Iterable[str], *, end: str | None = None) -> str:
    """Headings of words, of numbers, and of a last column; rows as `_tr` makes them."""
    heads = [*(f"<th>{escape(h)}</th>" for h in left), *(f'<th class="n">{escape(h)}</th>' for h in right)]
    heads += [] if end is None else [f"<th>{end}</th>"]
    return f'<div class="wide"><table>\n<tr>{"".join(heads)}</tr>\n' + "\n".join(rows) + "\n</table></div>"


def _tr(words: Iterable[str], numbers: Iterable[str], *, whole: bool = False, end: str = "") -> str:
    """A row; `words` are HTML, `end` is a cell of its own. `whole` sets off a source from its groups."""
    cells = [*(f"<td>{w}</td>" for w in words), *(f'<td class="n">{n}</td>' for n in numbers), end]
    return f"{'<tr class=whole>' if whole else '<tr>'}{''.join(cells)}</tr>"
