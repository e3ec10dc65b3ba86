"""Best fit, piece for piece beside a slow and plain one, and what must hold whatever the lengths."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tokenmill_shards.packing.best_fit import best_fit


def slow_best_fit(lengths: Sequence[int], capacity: int) -> list[int]:
    """The longest first, each into the tightest sequence with room, of equal ones the one filled last."""
    rooms: list[int] = []
    filled_at: list[int] = []
    sequences = [-1] * len(lengths)
    for now, piece in enumerate(sorted(range(len(lengths)), key=lambda piece: -lengths[piece])):
        fitting = [(room, -filled_at[s], s) for s, room in enumerate(rooms) if room >= lengths[piece]]
        if fitting:
            sequence = min(fitting)[2]
        else:
            sequence = len(rooms)
            rooms.append(capacity)
            filled_at.append(now)
        rooms[sequence] -= lengths[piece]
        filled_at[sequence] = now
        sequences[piece] = sequence
    return sequences


@st.composite
def pieces(draw: DrawFn) -> tuple[list[int], int]:
    capacity = draw(st.integers(1, 130))
    return draw(st.lists(st.integers(1, capacity), max_size=150)), capacity


@settings(deadline=None)  # the first call compiles
@given(pieces())
def test_like_the_plain_one(case: tuple[list[int], int]) -> None:
    lengths, capacity = case
    sequences, count = best_fit(np.array(lengths, np.int32), capacity)
    assert sequences.tolist() == slow_best_fit(lengths, capacity)
    assert count == len(set(sequences.tolist()))


@settings(deadline=None)  # the first call compiles
@given(pieces())
def test_no_sequence_is_overfull_and_no_two_would_fit_into_one(case: tuple[list[int], int]) -> None:
    lengths, capacity = case
    sequences, count = best_fit(np.array(lengths, np.int32), capacity)
    filled = np.bincount(sequences, lengths, count)
    assert (filled <= capacity).all()
    assert count < 2 or np.sort(filled)[:2].sum() > capacity


@pytest.mark.parametrize(
    ("lengths", "capacity", "expected"),
    [
        ([], 8, []),
        ([8, 8], 8, [0, 1]),
        ([5, 3, 6, 2], 8, [1, 1, 0, 0]),
        ([4, 6, 5, 2, 3], 9, [1, 0, 1, 2, 0]),
        ([1, 1, 1], 1, [0, 1, 2]),
    ],
)
def test_by_hand(lengths: list[int], capacity: int, expected: list[int]) -> None:
    sequences, _ = best_fit(np.array(lengths, np.int32), capacity)
    assert sequences.tolist() == expected


def test_text_like_lengths_fill_sequences_all_but_whole() -> None:
    lengths = np.clip(np.random.default_rng(0).lognormal(6, 1, 50_000), 1, 2049).astype(np.int32)
    _, count = best_fit(lengths, 2049)
    assert lengths.sum() / (count * 2049) > 0.999
