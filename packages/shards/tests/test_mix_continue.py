"""A mixture that goes on with an earlier one: the same samples up to its token, and no token of a source lost after."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from tokenmill_core.build import build_stage
from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_core.mixture_manifest import Continued, MixtureManifest
from tokenmill_shards import MixtureReader
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
        (("twin={b}",), {}, ConfigError, r"source 'twin' was called 'b' in .*: call it 'b' here, too"),
        (("b={b}", "twin={b}"), {}, ConfigError, r"sources 'b' and 'twin' are the same dataset"),
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


# Filling in the middle


@pytest.fixture
def texts(tokenize: Callable[..., LoadedManifest[TokensManifest]], tmp_path: Path) -> dict[str, str]:
    """Folders of `a`, `b` and `c`, whose tokenizer has two families of tokens for filling in the middle."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{n}": n for n in range(20)}, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["<eos>", "<PRE>", "<MID>", "<SUF>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>"])
    made.save(str(tmp_path / "fim.json"))
    words = [" ".join(f"w{(i * k) % 20}" for i in range(30)) for k in range(30)]
    rows = {name: words[first:] for first, name in enumerate("abc", 1)}
    return {name: tokenize(name, own, tokenizer=str(tmp_path / "fim.json")).folder for name, own in rows.items()}


def fim_of(mixture: LoadedManifest[MixtureManifest]) -> dict[str, tuple[float, float]]:
    """(rate, share of suffix first) of each source that has a rate."""
    return {s.name: (s.fim_rate, s.fim_spm_share) for s in mixture.manifest.sources if s.fim_rate}


def tokens_before(mixture: LoadedManifest[MixtureManifest]) -> list[list[int]]:
    read: list[list[int]] = MixtureReader.open(mixture.url, LENGTH).samples(np.arange(100)).tokens.tolist()
    return read


@pytest.mark.parametrize("settings", [{}, {"fim": {"a": 0.3, "b": 0.5}}, {"fim": {"c": 0.9}}, {"fim_spm_share": 0.25}])
def test_what_was_filled_in_the_middle_stays_so(mix: Mix, texts: dict[str, str], settings: dict[str, Any]) -> None:
    asked = {"fim": {"a": 0.3, "b": 0.5}, "fim_spm_share": 0.25, "fim_tokens": ("<PRE>", "<MID>", "<SUF>")}
    first = mix(*(f"{name}={texts[name]}" for name in "ab"), out="first.json", **asked)
    assert first.manifest.fim is not None
    plain = mix(*(f"{name}={texts[name]}" for name in "ab"), out="plain.json")
    assert tokens_before(plain) != tokens_before(first)
    named = [f"{name}={texts[name]}:1" for name in "bc"]
    second = mix(*named, out="second.json", continues=first.url, continue_from=100 * LENGTH, **settings)
    assert tokens_before(second) == tokens_before(first)
    assert second.manifest.fim == first.manifest.fim
    new = {"c": (0.9, 0.25)} if "c" in settings.get("fim", {}) else {}
    assert fim_of(second) == {"a": (0.3, 0.25), "b": (0.5, 0.25)} | new
    third = mix(*named, out="third.json", continues=second.url, continue_from=150 * LENGTH)
    assert tokens_before(third) == tokens_before(first)


def test_new_sources_may_be_filled_in_the_middle_where_none_was(mix: Mix, texts: dict[str, str]) -> None:
    first = mix(f"a={texts['a']}", out="first.json")
    going_on: dict[str, Any] = {"out": "second.json", "continues": first.url, "continue_from": 100 * LENGTH}
    second = mix(f"b={texts['b']}", **going_on, fim={"b": 0.5}, fim_spm_share=1)
    assert tokens_before(second) == tokens_before(first)
    assert fim_of(second) == {"b": (0.5, 1)}
    with pytest.raises(ConfigError, match=r"fim 0\.5: source 'a' has 0 in .*first.json"):
        mix(f"b={texts['b']}", **going_on, fim=0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fim": 0.9}, r"fim 0\.9: source 'a' has 0\.5 in .*first.json, .* such as --fim NEW=0\.5"),
        ({"fim": {"a": 0}}, r"fim 0: source 'a' has 0\.5"),
        ({"fim": {"wob": 0.5}}, r"no source is called 'wob'"),
        ({"fim_spm_share": 0}, r"fim_spm_share 0\.0: .*first.json has 0\.5, .*: leave it out"),
        ({"fim_tokens": ("<fim_prefix>", "<fim_middle>", "<fim_suffix>")}, None),
        ({"fim_tokens": ("<PRE>", "<MID>", "<SUF>")}, r"fim_tokens: .*first.json has other special tokens, .*: leave"),
    ],
)
def test_other_filling_in_the_middle_is_refused(
    mix: Mix, texts: dict[str, str], settings: dict[str, Any], message: str | None
) -> None:
    first = mix(f"a={texts['a']}", out="first.json", fim=0.5)
    going_on: dict[str, Any] = {"out": "second.json", "continues": first.url, "continue_from": 100} | settings
    named = [f"{name}={texts[name]}" for name in "ab"]
    if message is None:
        assert mix(*named, **going_on).manifest.fim == first.manifest.fim
        return
    with pytest.raises(ConfigError, match=message):
        mix(*named, **going_on)
