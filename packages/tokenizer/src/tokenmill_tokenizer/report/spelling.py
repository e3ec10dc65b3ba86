"""Numbers and tokens as people read them, in tables and on the page alike."""

import re

from tokenmill_tokenizer.report.result import Measure, Report, Token

MAX_CHARACTERS = 64
_RUN = re.compile(r"(\\x..|\\u....|\\.|.)\1{7,}")

NO_NUMBER = "–"
ALL_SOURCES = "all sources"


def brief(token: Token) -> str:
    """The token's literal, a long run in it as `x⟨×80⟩`, its middle left out where it is long still."""
    text = _RUN.sub(lambda run: f"{run[1]}⟨×{len(run[0]) // len(run[1])}⟩", token.token)
    half = MAX_CHARACTERS // 2
    return text if len(text) <= MAX_CHARACTERS else f"{text[:half]} … {text[-half:]}"


def number(value: float | None, digits: int = 2) -> str:
    """A ratio, or a dash."""
    return NO_NUMBER if value is None else f"{value:,.{digits}f}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share in per cent, or a dash."""
    return NO_NUMBER if share is None else f"{100 * share:.{digits}f} %"


def megabytes(num_bytes: int) -> str:
    """Bytes in the unit that suits them."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes} B"


def source_name(measure: Measure) -> str:
    """Its source; all of them have a name too."""
    return ALL_SOURCES if measure.source is None else measure.source


def text_name(measure: Measure) -> str:
    """Its source, and its group where it is about one."""
    return source_name(measure) if measure.group is None else f"{source_name(measure)} · {measure.group}"


def round_trip(measure: Measure) -> str:
    """Whether every document came back."""
    return f"{measure.round_trip_failures:,} differ" if measure.round_trip_failures else "exact"


def sampling(report: Report) -> str:
    """What of the sources was measured."""
    if all(source.sampled_documents == source.documents for source in report.sources):
        return "All documents of every source were measured."
    return (
        f"Of each source at most {megabytes(report.sample_bytes)} of text were measured: "
        "the documents with the lowest hashes of their text."
    )


def reason_name(reason: str) -> str:
    """The name of a check in words."""
    return reason.replace("_", " ")
