"""What `prep verify` finds in a mixture: sources that are not as it says, and samples that are not as its weights."""

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_core.build import build_stage
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, publish
from tokenmill_core.mixture_manifest import MixtureManifest, MixtureSource
from tokenmill_core.verify import Checked, find_problems
from tokenmill_shards import SampleOrder
from tokenmill_shards.audit import mixture_checks
from tokenmill_shards.audit.mixture_checks import deviation_bound, largest_deviation
from tokenmill_shards.mixing.mix import STAGE
from tokenmill_shards.mixing.request import MixConfig, StageRules

MakeMixture = Callable[..., LoadedManifest[MixtureManifest]]
SHARE = 0.3


@pytest.fixture
def parts(make_tokens: Callable[..., Any]) -> dict[str, tuple[LoadedManifest[TokensManifest], int]]:
    code = make_tokens("code", [[100, 20, 0, 90, 30, 160], [24, 243, 1]])
    prose = make_tokens("prose", [[300, 150, 50, 500], [], [100, 200, 150, 50, 7, 493]])
    return {"code": (counted(code), 1), "prose": (counted(prose), 3)}


def counted(tokens: LoadedManifest[TokensManifest]) -> LoadedManifest[TokensManifest]:
    """With the counts that the shards have."""
    sums = {unit: sum(getattr(entry, unit) or 0 for entry in tokens.manifest.files) for unit in ("documents", "tokens")}
    counts = tokens.manifest.counts.model_copy(update=sums | {"input_documents": sums["documents"]})
    return publish(tokens.manifest.model_copy(update={"counts": counts}), tokens.folder)


@pytest.fixture
def mixture(parts: Any, tmp_path: Path) -> LoadedManifest[MixtureManifest]:
    later = (
        {"from_tokens": first, "weights": {"code": a, "prose": b}} for first, a, b in ((5_000, 2, 2), (5_003, 4, 0))
    )
    config = MixConfig(
        weights={name: Decimal(weight) for name, (_, weight) in parts.items()},
        stages=tuple(StageRules.model_validate(rules) for rules in later),
        validation_share=SHARE,
    )
    stage = STAGE.build(config, [f"{name}={tokens.folder}" for name, (tokens, _) in parts.items()], None)
    return build_stage(stage, str(tmp_path / "mixture" / "manifest.json"), LocalExecutor(1)).loaded


def with_source(
    mixture: LoadedManifest[MixtureManifest], change: Callable[[MixtureSource], dict[str, Any]]
) -> LoadedManifest[MixtureManifest]:
    """The mixture with other fields of its second source."""
    first, second = mixture.manifest.sources
    sources = (first, second.model_copy(update=change(second)))
    return publish(mixture.manifest.model_copy(update={"sources": sources}), mixture.folder)


def test_what_is_as_it_says_has_no_problem_and_its_deviation_is_told(mixture: Any) -> None:
    checked = Checked()
    assert find_problems(mixture, checked=checked) == []
    assert checked.tokens == sum(source.tokens for source in mixture.manifest.sources)
    (note,) = checked.notes
    assert f"over {1_000_000 + 5_003:,} samples and 2 stage boundaries" in note
    assert note.endswith("(bound 1)")


def test_what_is_within_its_bound_never_reads_as_if_it_were_not(
    make_mixture: MakeMixture, parts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixture_checks, "_drawn_deviation", lambda mixture, number: (1, 1 - 2.0**-40))
    made, checked = make_mixture(parts, later=[(5_000, [2, 2])]), Checked()
    assert list(mixture_checks._share_problems(made, checked)) == []
    assert "and 1 stage boundary each source is within 0.9999 samples of its share (bound 1)" in checked.notes[0]


CHANGES: dict[str, tuple[Callable[[MixtureSource], dict[str, Any]], str]] = {
    "documents": (lambda s: {"documents": s.documents + 1}, r"documents is 11, but .*prose.* has 10; mix again"),
    "loss_mask": (lambda s: {"loss_mask": True}, "loss_mask is True, but .* has False"),
    "shard_tokens": (
        lambda s: {"shard_tokens": (s.shard_tokens[0] + 1, 0, s.shard_tokens[2] - 1)},
        r"shard_tokens is \[1001, 0, 999\], but .* has \[1000, 0, 1000\]",
    ),
    "held_out_documents": (
        lambda s: {"held_out_documents": s.held_out_documents + 1},
        "held_out_documents is .*, but a share of 0.3 gives",
    ),
    "held_out_tokens": (
        lambda s: {"held_out_tokens": (*s.held_out_tokens[:2], s.held_out_tokens[2] - 1)},
        r"held_out_tokens is \[.*\], but a share of 0.3 gives \[",
    ),
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_source_that_is_not_its_dataset_is_named(mixture: Any, field: str) -> None:
    change, message = CHANGES[field]
    (problem,) = find_problems(with_source(mixture, change))
    assert problem.startswith(f"{mixture.url}: source 'prose': {field}")
    assert re.search(message, problem), problem


def test_what_is_held_out_without_a_share_is_named(mixture: Any) -> None:
    found = find_problems(publish(mixture.manifest.model_copy(update={"validation_share": 0.0}), mixture.folder))
    assert len(found) == 5
    assert all("held_out_" in problem and "a share of 0 gives" in problem for problem in found[:4])
    assert "validation_share is 0.0, but its config asks for 0.3" in found[4]


def test_sources_of_another_tokenizer_are_named(mixture: Any) -> None:
    changed = mixture.manifest.model_copy(update={"tokenizer_sha256": "1" * 64})
    found = find_problems(publish(changed, mixture.folder))
    assert len(found) == 2
    for name, problem in zip(("code", "prose"), found, strict=True):
        assert f"source '{name}': tokenizer_sha256 is 111111111111…, but" in problem
        assert problem.endswith("has 000000000000…; mix again")


def test_a_dataset_that_was_made_again_is_named_once(mixture: Any, parts: Any) -> None:
    prose = parts["prose"][0]
    publish(prose.manifest.model_copy(update={"version": "2"}), prose.folder)
    (problem,) = find_problems(mixture)
    assert "was made from tokens 'prose'" in problem


def test_a_source_without_a_window_is_named(mixture: Any) -> None:
    change = with_source(mixture, lambda s: {"held_out_tokens": s.shard_tokens})
    assert any("source prose has 0 tokens" in problem for problem in find_problems(change))


def test_samples_that_pass_the_bound_are_a_problem(mixture: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the order keeps its bound, the bound is lowered."""
    monkeypatch.setattr(mixture_checks, "deviation_bound", lambda weights: 0.5)
    found = find_problems(mixture)
    assert found
    for problem in found:
        assert "samples off its weight, but must be within 0.500" in problem


weights_of_sources = st.lists(st.integers(0, 50), min_size=1, max_size=5).filter(any)


@settings(max_examples=100, deadline=None)
@given(weights_of_sources, st.lists(st.integers(0, 4), max_size=40))
def test_the_largest_deviation_is_that_of_every_prefix(weights: list[int], drawn: list[int]) -> None:
    """Of any draws, bad ones too: of the sources that are drawn, over all prefixes."""
    sources = np.array([source % len(weights) for source in drawn], np.int32)
    numbers = np.array([int((sources[:i] == source).sum()) for i, source in enumerate(sources)], np.int64)
    expected = Fraction(0)
    for source in set(sources.tolist()):
        last = int(np.flatnonzero(sources == source)[-1])
        for n in range(last + 2):
            off = int((sources[:n] == source).sum()) - Fraction(n * weights[source], sum(weights))
            expected = max(expected, abs(off))
    assert largest_deviation(sources, numbers, np.array(weights)) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize(
    "weights", [(1,), (1, 999), (1, 1 << 40), (1, 1 << 20, 1 << 40), (3, 5, 7, 11), (1, 1, 1, 1 << 38, 1 << 39)]
)
def test_what_is_drawn_keeps_the_bound(weights: tuple[int, ...]) -> None:
    order = SampleOrder(weights)
    sources, numbers = order.locate(np.arange(200_000))
    deviation = largest_deviation(sources, numbers, np.array(weights, np.int64))
    assert deviation < deviation_bound(weights)


def test_draws_in_the_wrong_order_pass_the_bound() -> None:
    sources = np.repeat(np.array([0, 1], np.int32), 10)
    numbers = np.tile(np.arange(10), 2)
    assert largest_deviation(sources, numbers, np.array([1, 1])) == 5.0 > deviation_bound((1, 1))
