"""The keyed shuffle: a bijection for any size, with no visible structure, and another for another key."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tokenmill_core.errors import InputError
from tokenmill_shards import epoch_key, permute
from tokenmill_shards.order.permutation import inverse_groups, permute_groups, round_keys


def shuffled(size: int, key: bytes = b"key") -> NDArray[np.int64]:
    return permute(np.arange(size), size, key)


def chi_square_limit(freedom: int) -> float:
    """A value that a chi-square with that many degrees of freedom passes about once in a billion."""
    return freedom + 6 * math.sqrt(2 * freedom) + 24


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 5000), st.binary(max_size=40))
def test_it_is_a_bijection(size: int, key: bytes) -> None:
    assert np.bincount(shuffled(size, key), minlength=size).tolist() == [1] * size


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 65_536, 65_537, 2**20 + 1])
def test_it_is_a_bijection_beside_powers_of_two(size: int) -> None:
    assert (np.sort(shuffled(size)) == np.arange(size)).all()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 1000, 65_537, 10**12, 2**62])
def test_the_inverse_leads_back(size: int) -> None:
    places = np.unique(np.linspace(0, size - 1, 1000).astype(np.int64).clip(0, size - 1))
    groups, sizes, keys = np.zeros(places.size, np.int64), np.array([size]), round_keys(b"key")[None, :]
    sent = permute_groups(places, groups, sizes, keys)
    assert (inverse_groups(sent, groups, sizes, keys) == places).all()
    assert (permute_groups(inverse_groups(places, groups, sizes, keys), groups, sizes, keys) == places).all()


@pytest.mark.parametrize("size", [2**40, 2**40 - 1, 2**40 + 1, 10**12, 2**62])
def test_large_sizes_have_no_collisions_and_fill_the_range(size: int) -> None:
    values = permute(np.arange(size - 200_000, size), size, b"key")
    assert np.unique(values).size == 200_000
    assert values.min() >= 0
    assert values.max() < size
    counts = np.bincount((values // (size // 100 + 1)), minlength=100)
    assert ((counts - 2000) ** 2 / 2000).sum() < chi_square_limit(99)


@pytest.mark.parametrize("size", [1000, 65_536, 100_003])
def test_neighbours_and_places_are_uncorrelated(size: int) -> None:
    values = shuffled(size).astype(float)
    limit = 6 / math.sqrt(size)
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < limit
    assert abs(np.corrcoef(values, np.arange(size))[0, 1]) < limit
    assert abs(np.corrcoef(values[::2][: size // 2], values[1::2][: size // 2])[0, 1]) < 2 * limit


def test_displacements_are_as_of_a_random_shuffle() -> None:
    size, cells = 100_000, 50
    displacement = (shuffled(size) - np.arange(size)) % size
    counts = np.bincount(displacement * cells // size, minlength=cells)
    assert ((counts - size / cells) ** 2 / (size / cells)).sum() < chi_square_limit(cells - 1)
    steps = np.diff(shuffled(size)) % size
    assert np.unique(steps).size > 0.6 * size, "a random shuffle has about 63 % distinct steps"


@pytest.mark.parametrize(("size", "factor"), [(2, 1), (3, 1), (4, 1), (5, 3)])
def test_small_sizes_reach_every_arrangement_about_equally_often(size: int, factor: int) -> None:
    num, arrangements = 12_000, math.factorial(size)
    index, groups = np.tile(np.arange(size), num), np.repeat(np.arange(num), size)
    keys = np.stack([round_keys(epoch_key("digest", 0, "source", epoch)) for epoch in range(num)])
    rows = permute_groups(index, groups, np.full(num, size), keys).reshape(num, size)
    counts = Counter(map(tuple, rows.tolist()))
    assert len(counts) == arrangements
    expected = num / arrangements
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < factor * chi_square_limit(arrangements - 1)


@pytest.mark.parametrize("size", [50, 1000])
def test_each_place_is_sent_everywhere_over_many_keys(size: int) -> None:
    num = 200 * size
    keys = np.random.default_rng(1).integers(0, 2**64, (num, 8), np.uint64)
    sent = permute_groups(np.full(num, size // 3), np.arange(num), np.full(num, size), keys)
    counts = np.bincount(sent, minlength=size)
    assert ((counts - 200) ** 2 / 200).sum() < chi_square_limit(size - 1)


def test_other_keys_give_other_shuffles() -> None:
    base = ("digest", 1, "source", 2)
    keys = [
        epoch_key(*base),
        epoch_key("digest2", *base[1:]),
        epoch_key("digest", 2, "source", 2),
        epoch_key("digest", 1, "source2", 2),
        epoch_key("digest", 1, "source", 3),
    ]
    rows = [shuffled(1000, key) for key in keys]
    for number, row in enumerate(rows):
        for other in rows[:number]:
            assert (row == other).sum() < 10, "two random shuffles agree in about one place"


def test_keys_do_not_run_their_parts_together() -> None:
    assert epoch_key("ab", 1, "c", 2) != epoch_key("a", 1, "bc", 2)
    assert epoch_key("a", 1, "s", 12) != epoch_key("a", 11, "s", 2)


def test_the_shuffle_is_the_same_in_every_version_and_process() -> None:
    """The order of data is part of a mixture's identity: a change here breaks resuming."""
    assert shuffled(10, epoch_key("0" * 64, 0, "a", 0)).tolist() == [0, 5, 9, 2, 4, 8, 1, 7, 3, 6]
    assert permute([0, 1, 2], 2**40, b"key").tolist() == [1060240907310, 677044959804, 715158348070]


def test_shapes_are_kept_and_many_permutations_go_in_one_call() -> None:
    index = np.arange(12).reshape(3, 4)
    assert permute(index, 12, b"a").shape == (3, 4)
    sizes, keys = np.array([5, 70]), np.stack([round_keys(b"a"), round_keys(b"b")])
    groups = np.array([1, 0, 1, 0, 1])
    places = np.array([69, 4, 0, 0, 33])
    expected = [permute(p, [5, 70][g], [b"a", b"b"][g]).item() for p, g in zip(places, groups, strict=True)]
    assert permute_groups(places, groups, sizes, keys).tolist() == expected


@pytest.mark.parametrize(("index", "size"), [(5, 5), (-1, 5), (0, 0), (0, 2**62 + 1)])
def test_what_is_outside_is_refused(index: int, size: int) -> None:
    with pytest.raises(InputError, match=f"index {index} is outside a permutation of {size:,}"):
        permute([index], size, b"key")
