"""What a mixture gives for a budget of tokens: the table that `prep mix` prints."""

import re
from dataclasses import dataclass
from decimal import Decimal

from tokenmill_core.errors import ConfigError
from tokenmill_core.manifest import MixtureManifest

UNITS = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
MAX_TOKENS = 10**18


@dataclass(frozen=True)
class SourceBudget:
    """One row of the table."""

    name: str
    documents: int
    tokens: int
    share: float
    """Share of the samples, 0 to 1."""
    drawn_tokens: float
    """Tokens that the budget draws from the source."""
    epochs: float
    """How often it sees each of the source's training tokens."""


def budget_table(mixture: MixtureManifest, tokens: int | None) -> list[SourceBudget]:
    """A row a source for a budget of `tokens`; none: as many as the sources hold together."""
    held_in = 1 - mixture.validation_share
    total = tokens if tokens is not None else held_in * sum(source.tokens for source in mixture.sources)
    rows = []
    for source in mixture.sources:
        share = source.weight / mixture.denominator
        rows.append(
            SourceBudget(
                name=source.name,
                documents=source.documents,
                tokens=source.tokens,
                share=share,
                drawn_tokens=share * total,
                epochs=share * total / (held_in * source.tokens) if source.tokens else 0.0,
            )
        )
    return rows


def parse_tokens(text: str) -> int:
    """A number of tokens such as `300M`, `1.5T`, `1e9` or `250_000`, rounded to a whole one."""
    match = re.fullmatch(r"([0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?(?:e[0-9]{1,3})?)([kMBGT]?)", text.strip(), re.ASCII)
    if not match:
        raise ConfigError(f"--tokens {text!r}: expected a number such as 300M, 10B or 1.5T")
    tokens = round(Decimal(match[1]) * UNITS[match[2]])
    if not 1 <= tokens <= MAX_TOKENS:
        raise ConfigError(f"--tokens {text!r}: expected at least 1 and at most 10^18 tokens")
    return tokens
