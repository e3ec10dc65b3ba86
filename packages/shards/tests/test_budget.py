"""Budgets, epochs and shares as people write them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill_core.errors import ConfigError
from tokenmill_shards.mixing.amounts import parse_per_source, parse_tokens, rounded_down, rounded_up


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("1", 1),
        ("300M", 300_000_000),
        ("10B", 10_000_000_000),
        ("10G", 10_000_000_000),
        ("1.5T", 1_500_000_000_000),
        ("0.3T", 300_000_000_000),
        ("4k", 4000),
        ("300K", 300_000),
        ("1e9", 1_000_000_000),
        ("1.5e3k", 1_500_000),
        ("250_000", 250_000),
        (" 7 ", 7),
        ("9007199254740993", 9_007_199_254_740_993),
    ],
)
def test_numbers_of_tokens(text: str, tokens: int) -> None:
    assert parse_tokens(text, "--tokens") == tokens


@pytest.mark.parametrize(
    "text",
    ["", "B", "ten", "-1", "1.B", "1,000", "10b", "10MB", "nan", "inf", "1_", "1__0", "_1", "1e", "0x10", "٣", "1 000"],
)
def test_what_is_no_number_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"such as 300M, 10B or 1\.5T; units are K, M, B \(or G\) and T$"):
        parse_tokens(text, "--tokens")


@pytest.mark.parametrize("text", ["0", "0.4", "0T", "1e400", "1e999T", "2000000T"])
def test_a_budget_is_at_least_one_token_and_no_more_than_can_be(text: str) -> None:
    with pytest.raises(ConfigError, match="at least 1 and at most"):
        parse_tokens(text, "--tokens")


@pytest.mark.parametrize(
    ("text", "parts"),
    [("web=4", ("web", "4")), ("4", ("*", "4")), ("a=b=0.5", ("a=b", "0.5")), ("web=1e-3", ("web", "1e-3"))],
)
def test_a_number_for_one_source_or_for_all(text: str, parts: tuple[str, str]) -> None:
    assert parse_per_source(text, "--epochs") == parts


@pytest.mark.parametrize("text", ["", "web", "web=", "=4", "web=four", "web:4"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--epochs .* expected NAME=NUMBER, or a number for all sources"):
        parse_per_source(text, "--epochs")


@given(st.fractions(0, 10**15, max_denominator=10**9))
def test_rounded_numbers_lie_on_their_side(value: Fraction) -> None:
    down, up = Fraction(rounded_down(value)), Fraction(rounded_up(value))
    assert down <= value <= up
    assert up - down <= value / 1000
