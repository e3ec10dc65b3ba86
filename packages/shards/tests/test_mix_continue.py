"""A mixture that goes on with an earlier one: the same samples up to its token, and no token of a source lost after."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenmill_core.build import build_stage
from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import Continued, MixtureManifest, TokensManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_shards.mixing.mix import STAGE
from tokenmill_shards.mixing.request import MixConfig
from tokenmill_shards.mixture import Mixture

Mix = Callable[..., LoadedManifest[MixtureManifest]]
LENGTH = 8


@pytest.fixture
def mix(tmp_path: Path) -> Mix:
    """mix("a=DIR", …, out=…, **settings): the mixture."""

    def run(*sources: str, out: str, **settings: Any) -> Any:
        stage = STAGE.build(MixConfig(**settings), list(sources), None)
        return build_stage(stage, str(tmp_path / out), LocalExecutor(1)).loaded

    return run


@pytest.fixture
def folders(make_tokens: Callable[..., LoadedManifest[TokensManifest]]) -> dict[str, str]:
    lengths = {"a": 200, "b": 100, "c": 50}
    return {name: make_tokens(name, [[5] * count, [7] * count]).folder for name, count in lengths.items()}


@pytest.fixture
def old(mix: Mix, folders: dict[str, str]) -> LoadedManifest[MixtureManifest]:
    return mix(f"b={folders['b']}:0.7", f"c={folders['c']}:0.3", out="old.json", seed=9, validation_share=0.2)


def samples(mixture: LoadedManifest[MixtureManifest], first: int, stop: int) -> list[tuple[str, int, int]]:
    """(name of the source, epoch, window) of each sample."""
    located = Mixture(mixture.manifest, LENGTH).locate(np.arange(first, stop))
    names = [source.name for source in mixture.manifest.sources]
    return [(names[s], e, w) for s, e, w in zip(*(part.tolist() for part in located), strict=True)]


def test_both_agree_on_every_sample_before_the_switch(
    mix: Mix, old: LoadedManifest[MixtureManifest], folders: dict[str, str]
) -> None:
    new = mix(f"a={folders['a']}:1", f"b={folders['b']}:1", out="new.json", continues=old.url, continue_from=1001)
    switch = 126  # the first sample that starts at or after token 1001
    assert samples(new, 0, switch) == samples(old, 0, switch)
    assert {name for name, _, _ in samples(new, switch, 1000)} == {"a", "b"}
    assert [source.name for source in new.manifest.sources] == ["a", "b", "c"]
    assert new.manifest.continues == (Continued(digest=old.manifest.digest, until_token=1001),)
    assert (new.manifest.seed, new.manifest.validation_share) == (9, 0.2)


def test_a_source_that_stays_goes_on_in_the_middle_of_its_epoch(
    mix: Mix, old: LoadedManifest[MixtureManifest], folders: dict[str, str]
) -> None:
    new = mix(f"b={folders['b']}", out="new.json", continues=old.url, continue_from=400)
    mixture = Mixture(new.manifest, LENGTH)
    windows = int(mixture.num_windows[0])
    drawn = [(epoch, window) for name, epoch, window in samples(new, 0, 3 * windows) if name == "b"]
    for epoch in range(2):
        assert sorted(window for own, window in drawn if own == epoch) == list(range(windows))


def test_a_third_mixture_goes_on_with_both(
    mix: Mix, old: LoadedManifest[MixtureManifest], folders: dict[str, str]
) -> None:
    second = mix(f"a={folders['a']}", out="second.json", continues=old.url, continue_from=1000)
    later = mix(f"c={folders['c']}", out="later.json", continues=second.url, continue_from=2000)
    sooner = mix(f"c={folders['c']}", out="sooner.json", continues=second.url, continue_from=400)
    assert samples(later, 0, 250) == samples(second, 0, 250)
    assert samples(sooner, 0, 50) == samples(old, 0, 50)
    assert [c.until_token for c in later.manifest.continues] == [1000, 2000]
    assert [c.until_token for c in sooner.manifest.continues] == [400, 400]
    for mixture in (later, sooner):
        assert [c.digest for c in mixture.manifest.continues] == [old.manifest.digest, second.manifest.digest]
        assert mixture.manifest.shuffle_digest == old.manifest.digest
    assert [stage.first_token for stage in sooner.manifest.stages] == [0, 400]


def test_caps_count_what_the_earlier_mixture_drew(
    mix: Mix, old: LoadedManifest[MixtureManifest], folders: dict[str, str]
) -> None:
    sources = (f"b={folders['b']}", f"c={folders['c']}")
    tokens = {source.name: source.training_tokens for source in old.manifest.sources}
    cap, first = 3 * tokens["c"], 1000
    new = mix(
        *sources,
        out="new.json",
        continues=old.url,
        continue_from=first,
        max_epochs={"c": 3},
        method="uniform",
        tokens=4000,
    )
    share = new.manifest.stages[-1].weights[1] / new.manifest.denominator
    assert share * 3000 + 0.3 * first == pytest.approx(cap)
    with pytest.raises(ConfigError, match=r"--tokens 500: .* 'stage-2' begins at 1000"):
        mix(*sources, out="no.json", continues=old.url, continue_from=first, tokens=500)


def test_stages_of_both_follow_each_other(
    mix: Mix, old: LoadedManifest[MixtureManifest], folders: dict[str, str]
) -> None:
    staged = {"stages": [{"from_tokens": 3000, "name": "end", "weights": {"c": 1}}]}
    new = mix(f"b={folders['b']}", out="new.json", continues=old.url, continue_from=1000, **staged)
    assert [(stage.name, stage.first_token) for stage in new.manifest.stages] == [
        ("stage-1", 0),
        ("stage-2", 1000),
        ("end", 3000),
    ]
    assert {name for name, _, _ in samples(new, 375, 500)} == {"c"}, "a source left out may be named in a later stage"


@pytest.mark.parametrize(
    ("sources", "settings", "error", "message"),
    [
        (("b={b}",), {"seed": 8}, ConfigError, r"seed 8: .*old.json has 9, .*: leave it out"),
        (("b={b}",), {"validation_share": 0.1}, ConfigError, r"validation_share 0\.1: .* has 0\.2"),
        (("b={a}",), {}, InputError, r"source 'b' is another dataset than in .*: give it a name of its own"),
        (("twin={b}",), {}, ConfigError, r"sources 'b' and 'twin' are the same dataset"),
        (("b={b}",), {"continue_from": None}, ConfigError, r"needs both --continue MIXTURE and --from TOKENS"),
        (("b={b}",), {"continues": None}, ConfigError, r"needs both --continue MIXTURE and --from TOKENS"),
    ],
)
def test_what_cannot_go_on_is_refused(
    mix: Mix,
    old: LoadedManifest[MixtureManifest],
    folders: dict[str, str],
    sources: tuple[str, ...],
    settings: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    named = [source.format(**folders) for source in sources]
    with pytest.raises(error, match=message):
        mix(*named, out="new.json", **{"continues": old.url, "continue_from": 1000} | settings)
    same = mix(f"b={folders['b']}", out="new.json", continues=old.url, continue_from=1000, seed=9, validation_share=0.2)
    assert same.manifest.seed == 9
