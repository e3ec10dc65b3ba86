"""The mixture as a pure function: counts, epochs, stages, and the way back from a window to its samples."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_core.errors import InputError
from tokenmill_core.manifest import Kind, StageRef
from tokenmill_core.mixture_manifest import Continued, MixtureManifest, MixtureSource, MixtureStage
from tokenmill_shards import Mixture, num_windows

LENGTH = 16


def mixture_of(
    tokens: list[int], stages: list[tuple[int, list[int]]], seed: int = 0, **fields: object
) -> MixtureManifest:
    """A mixture of sources of so many tokens; `stages` as (first token, weights)."""
    denominator = sum(stages[0][1])
    reference = {"kind": Kind.TOKENS, "name": "t", "version": "1", "digest": "0" * 64, "path": "t"}
    manifest = MixtureManifest(
        name="m",
        stage=StageRef(name="mix", version=1),
        config={},
        inputs=(reference,),
        sources=tuple(
            MixtureSource(name=f"s{i}", input=0, documents=1, tokens=n, shard_tokens=(n,)) for i, n in enumerate(tokens)
        ),
        stages=tuple(
            MixtureStage(name=f"{i}", first_token=first, weights=tuple(weights))
            for i, (first, weights) in enumerate(stages)
        ),
        denominator=denominator,
        seed=seed,
        dtype="uint16",
        vocab_size=100,
        padded_vocab_size=128,
        tokenizer_sha256="0" * 64,
        end_of_document_id=None,
        **fields,
    )
    return manifest.sealed()


def walked(mixture: Mixture, num_samples: int) -> list[tuple[int, int, int]]:
    located = mixture.locate(np.arange(num_samples))
    return list(zip(*(part.tolist() for part in located), strict=True))


sources = st.integers(1, 5).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(LENGTH + 1, 40 * LENGTH), min_size=n, max_size=n),
        st.lists(st.lists(st.integers(0, 1000), min_size=n, max_size=n).filter(any), min_size=1, max_size=3),
        st.lists(st.integers(1, 4000), min_size=2, max_size=2, unique=True),
    )
)


def staged(drawn: tuple[list[int], list[list[int]], list[int]], seed: int = 0) -> MixtureManifest:
    """Weights brought to one sum: what is missing goes to the first source that has any."""
    tokens, weights, starts = drawn
    total = max(sum(row) for row in weights)
    for row in weights:
        row[next(i for i, weight in enumerate(row) if weight)] += total - sum(row)
    return mixture_of(tokens, list(zip([0, *sorted(starts)], weights, strict=False)), seed)


@settings(max_examples=60, deadline=None)
@given(sources, st.integers(0, 3))
def test_counts_are_what_is_drawn_and_stay_within_one_of_their_stage(drawn, seed) -> None:
    manifest = staged(drawn, seed)
    mixture, num_samples = Mixture(manifest, LENGTH), 700
    source = mixture.locate(np.arange(num_samples)).source
    counts = np.zeros((num_samples + 1, len(manifest.sources)), np.int64)
    for number in range(len(manifest.sources)):
        counts[1:, number] = np.cumsum(source == number)
    for n in (0, 1, 2, 65, 333, num_samples):
        assert (mixture.counts(n) == counts[n]).all()
        assert sum(use.samples for use in mixture.use(n)) == n
    firsts = [min(-(-stage.first_token // LENGTH), num_samples) for stage in manifest.stages]
    for stage, first, last in zip(manifest.stages, firsts, [*firsts[1:], num_samples], strict=True):
        steps = np.arange(last - first + 1)[:, None]
        target = steps * np.array(stage.weights) / manifest.denominator
        assert (np.abs(counts[first : last + 1] - counts[first] - target) < 1 + 1e-9).all()


@settings(max_examples=60, deadline=None)
@given(sources, st.integers(0, 3))
def test_each_window_comes_once_an_epoch_across_stages(drawn, seed) -> None:
    manifest = staged(drawn, seed)
    mixture = Mixture(manifest, LENGTH)
    visits: dict[tuple[int, int], list[int]] = defaultdict(list)
    for source, epoch, window in walked(mixture, 700):
        visits[source, epoch].append(window)
    for (source, epoch), windows in visits.items():
        assert len(set(windows)) == len(windows)
        if (source, epoch + 1) in visits:
            assert sorted(windows) == list(range(mixture.num_windows[source]))


@settings(max_examples=40, deadline=None)
@given(sources, st.integers(1, 8), st.integers(1, 8))
def test_any_ranks_and_batches_see_one_order(drawn, world_size, share) -> None:
    mixture = Mixture(staged(drawn), LENGTH)
    whole = walked(mixture, 3 * world_size * share)
    pieces: list[tuple[int, int, int]] = []
    for step in range(3):
        for rank in range(world_size):
            begin = (step * world_size + rank) * share
            located = mixture.locate(np.arange(begin, begin + share))
            pieces += zip(*(part.tolist() for part in located), strict=True)
    assert pieces == whole


@settings(max_examples=40, deadline=None)
@given(sources, st.integers(1, 500))
def test_a_window_leads_back_to_its_samples(drawn, below) -> None:
    mixture = Mixture(staged(drawn), LENGTH)
    samples: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, (source, _, window) in enumerate(walked(mixture, below)):
        samples[source, window].append(index)
    for source, size in enumerate(mixture.num_windows.tolist()):
        for window in {0, size // 2, size - 1}:
            assert mixture.samples_of(source, window, below) == samples[source, window]


def test_epochs_are_shuffled_each_in_its_own_way_and_by_the_seed() -> None:
    orders = set()
    for seed in (0, 1):
        mixture = Mixture(mixture_of([64 * LENGTH + 1], [(0, [1])], seed), LENGTH)
        windows = mixture.locate(np.arange(4 * 64)).window.reshape(4, 64)
        orders |= {tuple(row) for row in windows.tolist()}
    assert len(orders) == 8
    assert all(sorted(order) == list(range(64)) for order in orders)


def test_a_stage_begins_with_the_first_sample_at_or_after_its_token() -> None:
    for first_token, first_sample in ((160, 10), (161, 11), (175, 11), (176, 11)):
        mixture = Mixture(mixture_of([1000, 1000], [(0, [1, 0]), (first_token, [0, 1])]), LENGTH)
        source = mixture.locate(np.arange(40)).source
        assert source.tolist() == [0] * first_sample + [1] * (40 - first_sample)


def test_a_mixture_that_continues_another_draws_what_that_would_have_drawn_until_then() -> None:
    old = mixture_of([900, 500, 700], [(0, [5, 3, 0])])
    new = mixture_of(
        [900, 500, 700], [(0, [5, 3, 0]), (800, [1, 3, 4])], continues=(Continued(digest=old.digest, until_token=800),)
    )
    before, after = walked(Mixture(old, LENGTH), 200), walked(Mixture(new, LENGTH), 200)
    assert new.digest != old.digest
    assert before[:50] == after[:50]
    drawn = Counter((source, epoch, window) for source, epoch, window in after)
    assert max(drawn.values()) == 1, "draws go on where they were: no window twice in an epoch"


def test_a_longer_run_only_appends() -> None:
    mixture = Mixture(mixture_of([900, 500], [(0, [999, 1])]), LENGTH)
    assert walked(mixture, 5000)[:100] == walked(mixture, 100)


@pytest.mark.parametrize(
    ("num_tokens", "sequence_length", "expected"),
    [(0, 64, 0), (1, 64, 0), (50, 64, 0), (64, 64, 0), (65, 64, 1), (128, 64, 1), (129, 64, 2), (2, 1, 1)],
)
def test_a_window_needs_one_token_more_than_its_length(num_tokens: int, sequence_length: int, expected: int) -> None:
    assert num_windows(num_tokens, sequence_length) == expected


@pytest.mark.parametrize(("num_tokens", "fits"), [(50, False), (64, False), (65, True)])
def test_a_source_shorter_than_a_window_is_refused_with_have_and_need(num_tokens: int, fits: bool) -> None:
    manifest = mixture_of([num_tokens], [(0, [1])])
    if fits:
        assert walked(Mixture(manifest, 64), 2) == [(0, 0, 0), (0, 1, 0)]
    else:
        message = f"source s0 has {num_tokens} tokens; sequence length 64 needs at least 65"
        with pytest.raises(InputError, match=message):
            Mixture(manifest, 64)


def test_a_source_without_weight_may_be_short_and_is_never_drawn() -> None:
    mixture = Mixture(mixture_of([500, 5], [(0, [3, 0])]), LENGTH)
    assert set(mixture.locate(np.arange(1000)).source.tolist()) == {0}
    with pytest.raises(InputError, match="sequence_length must be at least 1, got 0"):
        Mixture(mixture.manifest, 0)
