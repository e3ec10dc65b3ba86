"""Numbers as people write them: tokens, weights, epochs and shares, and one for every source or for some."""

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field

from tokenmill_core.errors import ConfigError

UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
MAX_TOKENS = 10**18
LEAST, MOST = Decimal("1e-12"), Decimal(10**9)
"""Of epochs, shares and rates above 0: below shares are nothing, and exact fractions of any size take forever."""
EVERY: Final = "*"
"""Stands for every source that is not named itself."""
SHOWN_DIGITS = 4


def parse_tokens(text: str, option: str) -> int:
    """A number of tokens such as `300M`, `1.5T`, `1e9` or `250_000`, rounded to a whole one.

    Raises:
        ConfigError: it is none, or not from 1 to 10^18; `option` is what the message calls it.
    """
    try:
        return _parse_tokens(text)
    except ConfigError as error:
        raise ConfigError(f"{option} {text!r}: {error}") from None


def parse_per_source(text: str, option: str) -> tuple[str, str]:
    """`NAME=NUMBER`, or `NUMBER` alone for every source: (name, number).

    Raises:
        ConfigError: the name or the number is missing, or the latter is no number.
    """
    name, equals, number = text.rpartition("=")
    try:
        Decimal(number)
    except ArithmeticError:
        number = ""
    if not number or bool(equals) != bool(name):
        raise ConfigError(f"{option} {text!r}: expected NAME=NUMBER, or a number for all sources")
    return name or EVERY, number


def _parse_tokens(text: str) -> int:
    match = re.fullmatch(r"([0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?(?:e[0-9]{1,3})?)([kKMBGT]?)", text.strip(), re.ASCII)
    if not match:
        raise ConfigError("expected a number such as 300M, 10B or 1.5T; units are K, M, B (or G) and T")
    tokens = round(Decimal(match[1]) * UNITS[match[2]])
    if not 1 <= tokens <= MAX_TOKENS:
        raise ConfigError("expected at least 1 and at most 10^18 tokens")
    return tokens


def _read_tokens(value: Any) -> Any:
    return _parse_tokens(value) if isinstance(value, str) else value


def _not_tiny(value: Decimal) -> Decimal:
    if 0 < value < LEAST:
        raise ConfigError(f"{value} is too little: give {LEAST:e} at least, or 0")
    return value


def _for_every(value: Any) -> Any:
    return value if isinstance(value, Mapping) else {EVERY: value}


Tokens = Annotated[int, BeforeValidator(_read_tokens), Field(ge=1, le=MAX_TOKENS)]
"""A whole number, or text such as `8B`."""
Size = Annotated[Decimal, Field(ge=0)]
"""Exact: as decimal as it was written. Only proportions count, so that it may be of any magnitude."""
Amount = Annotated[Decimal, Field(ge=0, le=MOST), AfterValidator(_not_tiny)]
Share = Annotated[Decimal, Field(ge=0, le=1), AfterValidator(_not_tiny)]
Amounts = Annotated[dict[str, Amount], BeforeValidator(_for_every)]
"""By name of the source; a number alone is for every source."""
Shares = Annotated[dict[str, Share], BeforeValidator(_for_every)]
"""The same, from 0 to 1."""


def amount_for(name: str, amounts: Mapping[str, Decimal]) -> Fraction | None:
    """What `amounts` says of source `name`, exactly; none where it says nothing."""
    amount = amounts.get(name, amounts.get(EVERY))
    return None if amount is None else Fraction(amount)


def rounded_up(value: Fraction) -> str:
    """`value` in few digits and not below it, as it may be typed."""
    return _rounded(value, ROUND_CEILING)


def rounded_down(value: Fraction) -> str:
    """`value` in few digits and not above it."""
    return _rounded(value, ROUND_FLOOR)


def _rounded(value: Fraction, rounding: str) -> str:
    context = Context(prec=SHOWN_DIGITS, rounding=rounding)
    return f"{context.divide(Decimal(value.numerator), Decimal(value.denominator)):f}"
