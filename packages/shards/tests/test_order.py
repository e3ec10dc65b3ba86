"""The order of sources: counts within bound at every prefix, the same from any place, fast at any index."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tokenmill_core.errors import InputError
from tokenmill_shards import SampleOrder
from tokenmill_shards.order.blocks import _earliest_deadline_first, _served

HALFWAY = [999] * 10 + [1] * 10
EQUAL_GROUPS = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 12)), min_size=1, max_size=4).map(
    lambda groups: [weight for weight, times in groups for _ in range(times)]
)
WEIGHTS = st.one_of(
    st.lists(st.integers(0, 50), min_size=1, max_size=12),
    st.lists(st.integers(0, 2**40), min_size=1, max_size=40),
    EQUAL_GROUPS,
    st.lists(st.sampled_from([1, 1, 1, 2, 999, 10**6]), min_size=1, max_size=60),
).filter(lambda weights: sum(weights) > 0)


def bounds(weights: list[int], block_size: int) -> list[Fraction]:
    """How far each source's count may be from its target, by the rule in the module's description."""
    total, heaviest = sum(weights), max(weights)
    while heaviest * block_size < total:
        block_size *= 2
    rare = [w for w in weights if 0 < w * block_size < total]
    if not rare:
        return [Fraction(1)] * len(weights)
    pool = iter(bounds(rare, block_size))
    common_weight = total - sum(rare)
    return [
        next(pool) + Fraction(w, 2 * sum(rare)) if 0 < w * block_size < total else 1 + Fraction(w, 2 * common_weight)
        for w in weights
    ]


def assert_within_bounds(weights: list[int], order: SampleOrder, block_size: int, first: int, num: int) -> None:
    """Walk `num` samples from index `first`, checking every prefix on exact integers."""
    sources, occurrences = order.locate(np.arange(first, first + num))
    total, limits, counts = sum(weights), bounds(weights, block_size), order.counts(first)
    assert sum(counts) == first
    for n, (source, occurrence) in enumerate(zip(sources.tolist(), occurrences.tolist(), strict=True), first + 1):
        assert occurrence == counts[source], "occurrences are consecutive"
        counts[source] += 1
        for weight, count, limit in zip(weights, counts, limits, strict=True):
            distance = abs(count * total - n * weight)
            assert distance < limit * total or distance == weight == 0
    assert counts == order.counts(first + num)


@settings(max_examples=150, deadline=None)
@given(WEIGHTS, st.sampled_from([8, 13, 32, 100, 256]), st.integers(0, 2**40))
@example([1, 999], 2000, 0)
@example([1, 999], 256, 12345)
@example(HALFWAY, 10_000, 0)
@example([3, 3, 3, 1, 1, 1], 8, 0)
@example([1] * 100, 8, 2**40)
@example([10**9, 10**6, 10**6, 1000, 1000, 1, 1], 8, 2**40)
@example([2**45, 1], 8, 2**45)
def test_every_prefix_is_within_the_bound(weights: list[int], block_size: int, start: int) -> None:
    order = SampleOrder(weights, block_size)
    assert_within_bounds(weights, order, block_size, 0, min(1000, 4 * block_size))
    assert_within_bounds(weights, order, block_size, start, min(600, 2 * block_size))


@settings(max_examples=60, deadline=None)
@given(WEIGHTS)
def test_the_bound_is_one_without_rare_sources_and_below_one_and_a_half_with_one_pool(weights: list[int]) -> None:
    limits = bounds(weights, 1 << 16)
    drawn = [w for w in weights if w]
    if min(drawn) << 16 >= sum(drawn):
        assert set(limits) == {1}
    for block_size in (8, 64, 1 << 16):
        assert max(bounds(weights, block_size)) < 2 + Fraction(1, block_size)


@settings(max_examples=60, deadline=None)
@given(WEIGHTS, st.sampled_from([8, 64]), st.lists(st.integers(0, 500), max_size=60))
def test_any_indices_in_any_order_give_what_a_walk_gives(
    weights: list[int], block_size: int, wanted: list[int]
) -> None:
    walk = SampleOrder(weights, block_size).locate(np.arange(501))
    indices = np.array(wanted, np.int64)
    for found, expected in zip(SampleOrder(weights, block_size).locate(indices), walk, strict=True):
        assert found.tolist() == expected[indices].tolist()


@pytest.mark.parametrize("weights", [[0, 5, 0, 7], [0, 1], [1, 0, 10**9]])
def test_a_source_without_weight_is_never_drawn(weights: list[int]) -> None:
    order = SampleOrder(weights, 16)
    zero = [source for source, weight in enumerate(weights) if weight == 0]
    assert not np.isin(order.locate(np.arange(5000))[0], zero).any()
    assert all(order.counts(10**12)[source] == 0 for source in zero)


@pytest.mark.parametrize(
    "weights", [[1, 999], [1] * 1000, [2**45, 2**44, 1, 1, 3], list(range(1, 300)), [7], [1] * 70_000]
)
@pytest.mark.parametrize("start", [0, 2**40 - 5, 3 * 2**38 + 11])
def test_the_real_block_size_over_two_blocks(weights: list[int], start: int) -> None:
    order = SampleOrder(weights)
    num = 2 * 65_536
    sources, occurrences = order.locate(np.arange(start, start + num))
    before, after = np.array(order.counts(start)), np.array(order.counts(start + num))
    assert (np.bincount(sources, minlength=len(weights)) == after - before).all()
    assert sum(before) == start
    assert (occurrences >= before[sources]).all()
    by_source = np.argsort(sources, kind="stable")
    firsts = np.concatenate([[True], np.diff(sources[by_source]) > 0])
    assert (np.diff(occurrences[by_source])[~firsts[1:]] == 1).all()
    total = sum(weights)
    limit = max(bounds(weights, 65_536))
    for n in (start, start + num // 2, start + num):
        counts = order.counts(n)
        assert all(abs(count * total - n * w) < limit * total for count, w in zip(counts, weights, strict=True))


def draw(weights: list[int], slot: int, served: list[int], slots: int) -> NDArray[np.int32]:
    """Draw `slots` samples from `slot` on, given who has been served there; the boundary after it is ours."""
    total, array = sum(weights), np.array(weights, np.int64)
    floors, remainders = (np.array(part) for part in zip(*(divmod(slot * w, total) for w in weights), strict=True))
    end_floors, end_remainders = (
        np.array(part) for part in zip(*(divmod((slot + slots) * w, total) for w in weights), strict=True)
    )
    quotas = end_floors + _served(end_remainders, array, total) - floors - np.array(served)
    sources = np.empty(slots, np.int32)
    _earliest_deadline_first(array, total, remainders, np.array(served), quotas, sources, np.empty(slots, np.int32))
    return sources


def test_largest_remainder_at_a_boundary_can_make_the_future_impossible() -> None:
    """Ten heavy and ten light sources, all with the remainder 1/2: ties let the heavy ones all be behind together."""
    slot = sum(HALFWAY) // 2
    remainders = np.array([slot * weight % sum(HALFWAY) for weight in HALFWAY])
    assert set(remainders.tolist()) == {slot}
    with pytest.raises(AssertionError, match="missed its window"):
        draw(HALFWAY, slot, [0] * 10 + [1] * 10, 64)
    ours = _served(remainders, np.array(HALFWAY), sum(HALFWAY))
    assert ours.sum() == 10
    assert draw(HALFWAY, slot, ours.tolist(), 64).size == 64


@settings(max_examples=100, deadline=None)
@given(WEIGHTS.map(lambda weights: [w for w in weights if w]), st.integers(0, 2**40))
def test_as_many_are_served_at_a_boundary_as_the_remainders_sum_to(weights: list[int], slot: int) -> None:
    total = sum(weights)
    remainders = np.array([slot * weight % total for weight in weights])
    served = _served(remainders, np.array(weights), total)
    assert served.sum() * total == sum(remainders.tolist())
    assert not served[remainders == 0].any()


@pytest.mark.parametrize(
    ("weights", "message"),
    [([0, 0], "sum to between 1 and .*, got 0"), ([], "got 0"), ([3, -1], "negative, got -1"), ([2**46, 1], "sum to")],
)
def test_impossible_weights_are_refused(weights: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SampleOrder(weights)


def test_no_indices_give_no_samples() -> None:
    for weights in ([1, 2], [1, 2**40]):
        sources, occurrences = SampleOrder(weights).locate(np.array([], np.int64))
        assert sources.size == occurrences.size == 0
