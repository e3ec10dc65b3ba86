"""Token budgets as people write them, and the table that a budget gives."""

from collections.abc import Callable
from typing import Any

import pytest

from tokenmill_core.errors import ConfigError
from tokenmill_shards.mixing.budget import budget_table, parse_tokens


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
        ("1e9", 1_000_000_000),
        ("1.5e3k", 1_500_000),
        ("250_000", 250_000),
        (" 7 ", 7),
        ("9007199254740993", 9_007_199_254_740_993),
    ],
)
def test_numbers_of_tokens(text: str, tokens: int) -> None:
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize(
    "text",
    ["", "B", "ten", "-1", "1.B", "1,000", "10b", "10MB", "nan", "inf", "1_", "1__0", "_1", "1e", "0x10", "٣", "1 000"],
)
def test_what_is_no_number_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected a number such as 300M, 10B or 1\.5T"):
        parse_tokens(text)


@pytest.mark.parametrize("text", ["0", "0.4", "0T", "1e400", "1e999T", "2000000T"])
def test_a_budget_is_at_least_one_token_and_no_more_than_can_be(text: str) -> None:
    with pytest.raises(ConfigError, match="at least 1 and at most"):
        parse_tokens(text)


@pytest.fixture
def mixture(make_tokens: Callable[..., Any], make_mixture: Callable[..., Any]) -> Callable[[float], Any]:
    code, prose = make_tokens("code", [[1000]]), make_tokens("prose", [[2000, 2000]])
    return lambda share: make_mixture({"code": (code, 1), "prose": (prose, 3)}, validation_share=share).manifest


def test_the_table_of_a_budget(mixture: Callable[[float], Any]) -> None:
    rows = budget_table(mixture(0.0), 8000)
    assert [(row.name, row.tokens, row.share) for row in rows] == [("code", 1000, 0.25), ("prose", 4000, 0.75)]
    assert [(row.drawn_tokens, row.epochs) for row in rows] == [(2000, 2), (6000, 1.5)]


def test_without_a_budget_it_is_one_pass(mixture: Callable[[float], Any]) -> None:
    rows = budget_table(mixture(0.0), None)
    assert sum(row.drawn_tokens for row in rows) == 5000
    assert [row.epochs for row in rows] == [1.25, 0.9375]


def test_what_is_held_out_is_not_drawn(mixture: Callable[[float], Any]) -> None:
    rows = budget_table(mixture(0.5), None)
    assert sum(row.drawn_tokens for row in rows) == 2500
    assert [row.epochs for row in rows] == [1.25, 0.9375]


def test_an_empty_source_has_no_epochs(make_tokens: Callable[..., Any], make_mixture: Callable[..., Any]) -> None:
    manifest = make_mixture({"a": (make_tokens("a", [[10]]), 1), "b": (make_tokens("b", [[]]), 0)}).manifest
    assert [(row.share, row.epochs) for row in budget_table(manifest, 100)] == [(1, 10), (0, 0)]
