from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tokenmill_core.manifest import InputRef, Kind, StageRef
from tokenmill_core.mixture_manifest import Continued, FimTokens, MixtureManifest, MixtureSource, MixtureStage
from tokenmill_shards.reading.fim import FillInTheMiddle

PREFIX, MIDDLE, SUFFIX, OPENING, CLOSING, FIRST_TEXT = 0, 1, 2, 3, 4, 10
Row = tuple[NDArray[np.int64], NDArray[np.uint8]]


def manifest(rate: float, spm_share: float = 0.5, **changes: object) -> MixtureManifest:
    """A mixture of `code`, rearranged at `rate`, and `prose`, never rearranged."""
    shape = {"documents": 1, "tokens": 100, "shard_tokens": (100,)}
    fields = {
        "name": "mixture",
        "stage": StageRef(name="mix", version=1),
        "config": {},
        "inputs": tuple(
            InputRef(kind=Kind.TOKENS, name=name, version="1", digest="0" * 64, path=name) for name in ("code", "prose")
        ),
        "sources": (
            MixtureSource(name="code", input=0, **shape, fim_rate=rate, fim_spm_share=spm_share),
            MixtureSource(name="prose", input=1, **shape),
        ),
        "stages": (MixtureStage(name="all", first_token=0, weights=(1, 1)),),
        "denominator": 2,
        "seed": 5,
        "dtype": "uint16",
        "vocab_size": 60_000,
        "padded_vocab_size": 60_000,
        "tokenizer_sha256": "0" * 64,
        "beginning_of_document_id": OPENING,
        "end_of_document_id": CLOSING,
        "fim": FimTokens(prefix=PREFIX, middle=MIDDLE, suffix=SUFFIX),
    }
    return MixtureManifest.model_validate({**fields, **changes}).sealed()


def fim(rate: float, spm_share: float = 0.5) -> FillInTheMiddle:
    made = FillInTheMiddle.of(manifest(rate, spm_share))
    assert made is not None
    return made


def row_of(lengths: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Parts of these many tokens, all different, and where each begins."""
    return np.arange(sum(lengths), dtype=np.int64) + FIRST_TEXT, np.cumsum([0, *lengths])[:-1].astype(np.int64)


def rearranged(tokens: NDArray[np.int64], begins: NDArray[np.int64], transform: FillInTheMiddle, index: int) -> Row:
    new, counted = tokens.copy(), (tokens % 2).astype(np.uint8)
    transform.rearrange(new, counted, begins, 0, index)
    return new, counted


def undone(part: Sequence[int]) -> list[int]:
    """The text that `part` was made of, less the three tokens that its marks replaced."""
    suffix_at, middle_at = part.index(SUFFIX), part.index(MIDDLE)
    assert part[0] == PREFIX
    assert suffix_at < middle_at
    prefix, suffix, rest = part[1:suffix_at], part[suffix_at + 1 : middle_at], part[middle_at + 1 :]
    return [*prefix, *rest, *suffix]


def test_without_a_rate_there_is_nothing_to_do() -> None:
    assert FillInTheMiddle.of(manifest(0.0)) is None
    assert FillInTheMiddle.of(manifest(0.0, fim=None)) is None


def test_a_source_without_a_rate_is_left_as_it_is() -> None:
    tokens, begins = row_of([50, 50])
    new, counted = tokens.copy(), np.ones(100, np.uint8)
    fim(1.0).rearrange(new, counted, begins, 1, 0)
    assert np.array_equal(new, tokens)


@settings(deadline=None)  # the first call compiles
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    opened=st.booleans(),
    closed=st.booleans(),
    row_begins_a_document=st.booleans(),
    index=st.integers(0, 1 << 40),
)
def test_every_part_can_be_put_together_again(
    lengths: list[int], opened: bool, closed: bool, row_begins_a_document: bool, index: int
) -> None:
    tokens, begins = row_of(lengths)
    bounds = [*begins.tolist(), tokens.size]
    spans = [(first, stop) for first, stop in pairwise(bounds) if first < stop]
    for first, stop in spans:
        tokens[first] = OPENING if opened else tokens[first]
        tokens[stop - 1] = CLOSING if closed else tokens[stop - 1]
    kept = begins if row_begins_a_document else begins[begins > 0]
    new, counted = rearranged(tokens, kept, fim(1.0), index)

    for first, stop in spans:
        old_part, part, marks = tokens[first:stop].tolist(), new[first:stop].tolist(), counted[first:stop].tolist()
        if old_part[0] == OPENING:
            assert part.pop(0) == old_part.pop(0)
            marks.pop(0)
        if old_part and old_part[-1] == CLOSING:
            assert part.pop() == old_part.pop()
            marks.pop()
        if len(old_part) <= 3:
            assert part == old_part
            continue
        assert undone(part) == old_part[:-3]
        any_counts = int(any(token % 2 for token in old_part))
        assert marks == [token % 2 if token >= FIRST_TEXT else any_counts for token in part]


@pytest.mark.parametrize("length", range(9))
def test_the_shortest_parts(length: int) -> None:
    tokens, begins = row_of([length])
    new, counted = rearranged(tokens, begins, fim(1.0), 3)
    if length <= 3:
        assert np.array_equal(new, tokens)
        assert np.array_equal(counted, tokens % 2)
    else:
        left = Counter(new.tolist())
        assert left == Counter([PREFIX, SUFFIX, MIDDLE, *tokens[:-3].tolist()])


@pytest.mark.parametrize(("rate", "spm_share"), [(0.5, 0.5), (0.1, 0.9), (0.9, 0.0), (1.0, 1.0)])
def test_rate_and_share_are_those_asked_for(rate: float, spm_share: float) -> None:
    transform, num_samples, parts, length = fim(rate, spm_share), 2000, 8, 40
    tokens, begins = row_of([length] * parts)
    changed = spm = 0
    for index in range(num_samples):
        row = rearranged(tokens, begins, transform, index)[0].reshape(parts, length)
        changed += int((row[:, 0] == PREFIX).sum())
        spm += int(((row[:, 0] == PREFIX) & (row[:, 1] == SUFFIX)).sum())

    def within(count: int, trials: int, share: float) -> bool:
        return abs(count - trials * share) <= 5 * (trials * share * (1 - share)) ** 0.5

    assert within(changed, num_samples * parts, rate)
    # PSM with an empty prefix, that is one of two cuts at the very start, begins like SPM.
    no_prefix = 1 - (1 - 1 / (length - 3 + 1)) ** 2
    assert within(spm, changed, spm_share + (1 - spm_share) * no_prefix)


def test_cuts_are_uniform() -> None:
    transform, length, num_samples = fim(1.0, spm_share=0.0), 33, 6000
    tokens, begins = row_of([length])
    places = np.zeros(length - 2)
    for index in range(num_samples):
        part = rearranged(tokens, begins, transform, index)[0].tolist()
        prefix, suffix = part.index(SUFFIX) - 1, part.index(MIDDLE) - part.index(SUFFIX) - 1
        places[prefix] += 1
        places[length - 3 - suffix] += 1
    expected = 2 * num_samples / places.size
    chi_squared = ((places - expected) ** 2 / expected).sum()
    assert chi_squared < 30 + 5 * 60**0.5  # 30 degrees of freedom: mean 30, variance 60


def test_a_sample_follows_from_mixture_and_index_alone() -> None:
    tokens, begins = row_of([30, 50, 20])
    one, other = fim(1.0), fim(1.0)
    forwards = [rearranged(tokens, begins, one, index)[0].tolist() for index in range(20)]
    backwards = [rearranged(tokens, begins, other, index)[0].tolist() for index in reversed(range(20))]
    assert forwards == backwards[::-1]
    assert len({tuple(row) for row in forwards}) == 20
    another_seed = FillInTheMiddle(manifest(1.0, seed=6))
    assert rearranged(tokens, begins, another_seed, 0)[0].tolist() != forwards[0]


def test_a_mixture_that_goes_on_rearranges_as_the_first() -> None:
    tokens, begins = row_of([30, 50, 20])
    first = manifest(1.0)
    later = manifest(1.0, name="later", continues=(Continued(digest=first.digest, until_token=1000),))
    assert later.digest != first.digest
    rows = [rearranged(tokens, begins, FillInTheMiddle(each), 7)[0].tolist() for each in (first, later)]
    assert rows[0] == rows[1]


def test_what_is_drawn_never_changes() -> None:
    transform = FillInTheMiddle(manifest(1.0).model_copy(update={"digest": "ab" * 32}))
    tokens, begins = row_of([12])
    rows = [rearranged(tokens, begins, transform, index)[0].tolist() for index in (2, 1 << 40)]
    assert rows == [
        [PREFIX, 10, 11, SUFFIX, 15, 16, 17, 18, MIDDLE, 12, 13, 14],
        [PREFIX, SUFFIX, 18, MIDDLE, 10, 11, 12, 13, 14, 15, 16, 17],
    ]
