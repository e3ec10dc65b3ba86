"""Figures are what the order draws, sample by sample; and the picture of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_shards.mixing.figures import Figures, figures, fitting_length, run_length
from tokenmill_shards.mixing.request import MixConfig
from tokenmill_shards.mixture import Mixture

MakeTokens = Callable[..., LoadedManifest[TokensManifest]]
MakeMixture = Callable[..., LoadedManifest[MixtureManifest]]


@pytest.fixture
def mixture(make_tokens: MakeTokens, make_mixture: MakeMixture) -> MixtureManifest:
    """`code` of 401 tokens and `prose` of 801, weights 1 to 3, and from token 1000 on 3 to 1."""
    code, prose = make_tokens("code", [[400, 1]]), make_tokens("prose", [[800], [1]])
    return make_mixture({"code": (code, 1), "prose": (prose, 3)}, later=[(1000, [3, 1])]).manifest


@pytest.mark.parametrize("tokens", [1001, 5000, 7777])
def test_figures_are_what_is_drawn(mixture: MixtureManifest, tokens: int) -> None:
    found = figures(mixture, tokens, 16)
    order = Mixture(mixture, 16)
    sources = order.locate(np.arange(-(-tokens // 16))).source
    switch = 63  # the first sample that starts at or after token 1000
    parts = [sources[:switch], sources[switch:]]
    assert [stage.first_sample for stage in found.stages] == [0, switch]
    for stage, part in zip(found.stages, parts, strict=True):
        counts = np.bincount(part, minlength=2).tolist()
        assert [own.samples for own in stage.sources] == counts
        assert [own.tokens for own in stage.sources] == [16 * count for count in counts]
        assert [own.epochs for own in stage.sources] == [counts[0] / 25, counts[1] / 50]
        assert stage.samples == part.size
        assert stage.tokens == 16 * part.size
    assert [[own.share for own in stage.sources] for stage in found.stages] == [[0.25, 0.75], [0.75, 0.25]]
    total = np.bincount(sources, minlength=2)
    assert [own.samples for own in found.total.sources] == total.tolist()
    assert [own.share for own in found.total.sources] == (total / total.sum()).tolist()
    assert [own.epochs for own in found.total.sources] == [own.epochs_so_far for own in found.stages[-1].sources]
    assert [use.epochs for use in order.use(sources.size)] == [own.epochs for own in found.total.sources]


def test_past_four_epochs_there_is_a_warning_with_what_repetition_is_worth(mixture: MixtureManifest) -> None:
    assert figures(mixture, 1000, 16).warnings == ()
    found = figures(mixture, 10_000, 16)
    assert [warning.split(":")[0] for warning in found.warnings] == ["source 'code'"]
    code = found.total.sources[0]
    assert f"{code.epochs:.2f} epochs" in found.warnings[0]
    assert f"{code.tokens:,} of them about {code.effective_tokens:,} new ones" in found.warnings[0]
    repetitions = code.tokens / 401 - 1
    expected = 401 * (1 + 15.387756 * (1 - np.exp(-repetitions / 15.387756)))
    assert code.effective_tokens == pytest.approx(expected, abs=0.51)


@pytest.fixture
def small(make_tokens: MakeTokens, make_mixture: MakeMixture) -> MixtureManifest:
    """`tiny` of 379 tokens, two windows of 128, and `web`, in the shares of four epochs of `tiny` in 40,000 tokens."""
    tiny, web = make_tokens("tiny", [[379]]), make_tokens("web", [[100_000]])
    return make_mixture({"tiny": (tiny, 4 * 379), "web": (web, 40_000 - 4 * 379)}).manifest


def test_epochs_in_whole_samples_that_pass_a_bound_are_told(small: MixtureManifest) -> None:
    most, fixed = MixConfig(max_epochs={"*": 4}, tokens=40_000), MixConfig(epochs={"tiny": 4}, tokens=40_000)
    found = figures(small, 40_000, 128, most)
    epochs = found.total.sources[0].samples / 2
    assert epochs > 5
    assert found.warnings[0] == (
        f"source 'tiny': {epochs:.2f} epochs in samples of 128, above its max_epochs 4: "
        "its last 122 tokens fill no window"
    )
    assert found.warnings[1].startswith(f"source 'tiny': {epochs:.2f} epochs; past 4"), "as the table shows them"
    assert "not its fixed 4: its last 122 tokens" in figures(small, 40_000, 128, fixed).warnings[0]
    assert len(figures(small, 40_000, 128).warnings) == 1


def test_epochs_within_one_sample_of_a_bound_are_as_good_as_met(small: MixtureManifest) -> None:
    for settings in (MixConfig(max_epochs={"*": 4}), MixConfig(epochs={"tiny": 4}), MixConfig()):
        assert figures(small, 40_000, 63, settings).warnings == (), "of 6 windows; 24 of 24.06 samples"


def test_a_bound_holds_over_stages_and_fixed_epochs_in_one(small: MixtureManifest) -> None:
    stage = small.stages[0]
    again = stage.model_copy(update={"name": "late", "first_token": 20_000})
    staged = small.model_copy(update={"stages": (stage, again)})
    most = MixConfig(max_epochs={"tiny": 4}, stages=({"from_tokens": 20_000},))
    (warning, _) = figures(staged, 40_000, 128, most).warnings
    assert warning.startswith("source 'tiny' in 'late': ")
    assert "above its max_epochs 4" in warning
    fixed = MixConfig(epochs={"tiny": 2}, stages=({"from_tokens": 20_000, "epochs": {"tiny": 1}},))
    (warning, _) = figures(staged, 40_000, 128, fixed).warnings
    assert warning.startswith("source 'tiny' in 'late': ")
    assert "not its fixed 1" in warning


def test_how_long_a_run_is(mixture: MixtureManifest) -> None:
    assert run_length(MixConfig(), 5000, mixture) == 5000
    assert run_length(MixConfig(), None, mixture) == 1000 + 401 + 801, "one pass after the last stage begins"
    stages = ({"from_tokens": 1000, "epochs": {"code": "0.5", "prose": 2}},)
    fixed = MixConfig(stages=stages)
    assert run_length(fixed, None, mixture) == run_length(fixed, 2803, mixture) == 1000 + 201 + 1602
    with pytest.raises(ConfigError, match=r"--tokens 2804: .* after 2803 tokens: --tokens 2803"):
        run_length(fixed, 2804, mixture)


def test_a_sequence_length_that_the_shortest_source_has(
    make_tokens: MakeTokens, make_mixture: MakeMixture, mixture: MixtureManifest
) -> None:
    assert fitting_length(mixture, 2048) == 400
    assert fitting_length(mixture, 100) == 100
    one, two = make_tokens("one", [[1]]), make_tokens("two", [[200]])
    assert fitting_length(make_mixture({"one": (one, 0), "two": (two, 1)}).manifest, 2048) == 199
    with pytest.raises(InputError, match=r"source 'one' has 1 tokens to train on, and a sample needs 2 at least"):
        fitting_length(make_mixture({"one": (one, 1), "two": (two, 1)}).manifest, 2048)


def renamed(found: Figures, name: str) -> Figures:
    body: dict[str, Any] = found.model_dump()
    for stage in (*body["stages"], body["total"]):
        stage["sources"][0]["name"] = name
    return Figures(**body)


def test_the_picture_is_the_same_every_time(mixture: MixtureManifest, tmp_path: Path) -> None:
    from tokenmill_shards.mixing.plot import plot_shares

    found = figures(mixture, 5000, 16)
    plot_shares(found, tmp_path / "a.png", "mixture")
    plot_shares(found, tmp_path / "b.png", "mixture")
    content = (tmp_path / "a.png").read_bytes()
    assert content == (tmp_path / "b.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    plot_shares(figures(mixture, 9000, 16), tmp_path / "c.png", "mixture")
    assert content != (tmp_path / "c.png").read_bytes()
    plot_shares(renamed(found, r"$\frac$"), tmp_path / "d.png", "$no formula")
    assert (tmp_path / "d.png").read_bytes() not in (b"", content)
