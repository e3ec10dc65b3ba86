"""The solver's arithmetic: shares of sizes, water-filling under bounds, and integers that sum to the denominator."""

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_shards.mixing.bounds import fill, largest_total
from tokenmill_shards.mixing.repetition import effective_tokens
from tokenmill_shards.mixing.shares import DENOMINATOR, integer_weights, raised


def solved(sizes: list[Decimal], temperature: float) -> list[int]:
    return integer_weights(raised(sizes, temperature), sizes)


def test_published_shares_of_mc4() -> None:
    """α = 0.3 over millions of pages; the published percentages are of the whole set, so their ratios to English."""
    pages = {"en": 3067, "ru": 756, "es": 416, "de": 397, "fr": 333}
    published = {"en": 5.67, "ru": 3.71, "es": 3.09, "de": 3.05, "fr": 2.89}
    weights = dict(zip(pages, solved([Decimal(n) for n in pages.values()], 1 / 0.3), strict=True))
    for language in pages:
        ratio = weights[language] / weights["en"]
        assert ratio == pytest.approx(published[language] / published["en"], rel=0.01)
        assert ratio == pytest.approx((pages[language] / pages["en"]) ** 0.3, rel=1e-9)


SIZES = st.one_of(
    st.just(Decimal(0)),
    st.integers(1, 10),
    st.integers(10**15, 10**15 + 3),
    st.integers(1, 10**18),
    st.decimals(min_value=Decimal("1e-12"), max_value=Decimal(10**6), allow_nan=False, allow_infinity=False),
).map(Decimal)
TEMPERATURES = st.sampled_from([1e-9, 0.1, 0.5, 1.0, 3.3, 1e6, 1e300]) | st.floats(0.01, 100)


@settings(max_examples=300, deadline=None)
@given(st.lists(SIZES, min_size=1, max_size=12).filter(any), TEMPERATURES)
def test_integer_weights(sizes: list[Decimal], temperature: float) -> None:
    weights = solved(sizes, temperature)
    assert sum(weights) == DENOMINATOR
    assert [weight > 0 for weight in weights] == [size > 0 for size in sizes]
    ranked = sorted(zip(sizes, weights, strict=True))
    for (small, low), (large, high) in itertools.pairwise(ranked):
        assert low <= high or small == large, "a larger source never gets less"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=8), st.floats(0.3, 50))
def test_weights_are_the_shares_of_the_formula(sizes: list[int], temperature: float) -> None:
    weights = solved([Decimal(size) for size in sizes], temperature)
    expected = [(size / max(sizes)) ** (1 / temperature) for size in sizes]
    for weight, value in zip(weights, expected, strict=True):
        # A source raised to 1 of 2^40 takes from the largest ones, at most one a source.
        assert weight / DENOMINATOR == pytest.approx(value / sum(expected), rel=1e-9, abs=len(sizes) / DENOMINATOR)


@pytest.mark.parametrize("factor", [Decimal("1e-30"), Decimal("0.7"), Decimal("1e40"), Decimal("1e900000")])
def test_only_the_proportions_of_sizes_count(factor: Decimal) -> None:
    sizes = [Decimal(3), Decimal(5), Decimal(7)]
    assert solved([size * factor for size in sizes], 2.0) == solved(sizes, 2.0)


def test_a_higher_temperature_evens_out() -> None:
    sizes = [Decimal(1), Decimal(100)]
    small = [solved(sizes, t)[0] for t in (0.5, 1.0, 2.0, 10.0, 1e6)]
    assert small == sorted(small)
    assert small[0] / DENOMINATOR == pytest.approx(1 / 10001, rel=1e-6)
    assert small[-1] / DENOMINATOR == pytest.approx(0.5, rel=1e-5)


# Water-filling


def published_unimax(counts: list[int], budget: Fraction, max_epochs: Fraction) -> list[Fraction]:
    """The loop of the paper, over sources in rising order of their size."""
    left = budget
    shares = [Fraction(0)] * len(counts)
    for place, number in enumerate(sorted(range(len(counts)), key=lambda i: counts[i])):
        shares[number] = min(left / (len(counts) - place), max_epochs * counts[number])
        left -= shares[number]
    return shares


EPOCHS = st.fractions(min_value=Fraction(1, 100), max_value=100, max_denominator=1000)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=20), EPOCHS, st.fractions(0, 1, max_denominator=10**6))
def test_with_equal_bases_it_is_the_loop_of_unimax(counts: list[int], epochs: Fraction, part: Fraction) -> None:
    budget = part * epochs * sum(counts)
    amounts = fill([Fraction(1)] * len(counts), [epochs * count for count in counts], budget)
    assert amounts == published_unimax(counts, budget, epochs)
    assert sum(amounts) == budget


PARTS = st.fractions(0, 10, max_denominator=100)
BOUNDS = st.none() | st.fractions(0, 20, max_denominator=100)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(PARTS, BOUNDS), min_size=1, max_size=10), st.fractions(0, 50, max_denominator=100))
def test_one_level_for_all_that_are_below_their_bounds(
    sources: list[tuple[Fraction, Fraction | None]], total: Fraction
) -> None:
    base, bounds = [part for part, _ in sources], [bound for _, bound in sources]
    amounts = fill(base, bounds, total)
    drawn = [i for i, part in enumerate(base) if part]
    room = (
        None if any(bounds[i] is None for i in drawn) else sum((bounds[i] or Fraction(0) for i in drawn), Fraction(0))
    )
    assert sum(amounts) == (total if room is None or room > total else room) * bool(drawn)
    free = {amounts[i] / base[i] for i in drawn if bounds[i] is None or amounts[i] < bounds[i]}
    assert len(free) <= 1
    for i, part in enumerate(base):
        assert part or not amounts[i]
        bound = bounds[i]
        if part and bound is not None and amounts[i] == bound and free:
            assert bound / part <= max(free), "bounded below the level of the others"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(BOUNDS, st.fractions(0, 1, max_denominator=20)), min_size=1, max_size=6),
    st.fractions(0, 5, max_denominator=10),
    st.fractions(0, 100, max_denominator=10),
)
def test_the_largest_total_that_can_be_met(
    sources: list[tuple[Fraction | None, Fraction]], fixed: Fraction, start: Fraction
) -> None:
    def reached(total: Fraction) -> Fraction:
        return fixed + sum(share * total if cap is None else min(cap, share * total) for cap, share in sources)

    caps, shares = [cap for cap, _ in sources], [share for _, share in sources]
    total = largest_total(fixed, caps, shares, start)
    assert total <= start
    assert reached(total) >= total
    if total < start:
        above = total + (start - total) / 1000
        assert reached(above) < above


@pytest.mark.parametrize(
    ("epochs", "worth"), [(1, 1.0), (2, 1.968), (4, 3.726), (8, 6.624), (16, 10.58), (40, 15.17), (10**9, 16.39)]
)
def test_published_worth_of_repeated_tokens(epochs: int, worth: float) -> None:
    assert effective_tokens(epochs * 10**9, 10**9) / 10**9 == pytest.approx(worth, rel=5e-4)


@given(st.integers(0, 10**13), st.integers(1, 10**12))
def test_repeated_tokens_are_worth_no_more_than_new_ones(drawn: int, unique: int) -> None:
    worth = effective_tokens(drawn, unique)
    assert min(drawn, unique) <= worth <= drawn
    assert worth <= math.ceil(16.387757 * unique)
