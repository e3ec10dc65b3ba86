"""What `prep verify` finds in a mixture that is not what its own config asks for."""

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from tokenmill_core.build import build_stage
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import StageRef
from tokenmill_core.manifest_io import LoadedManifest, publish
from tokenmill_core.mixture_manifest import Continued, FimTokens, MixtureManifest
from tokenmill_core.verify import Checked, find_problems
from tokenmill_shards.mixing.mix import STAGE
from tokenmill_shards.mixing.request import MixConfig, StageRules

Mixture = LoadedManifest[MixtureManifest]
SPECIAL = ["<PRE>", "<MID>", "<SUF>"]


@pytest.fixture
def mix(tokenize: Callable[..., Any], tmp_path: Path) -> Callable[..., Mixture]:
    """mix(out, **settings): a mixture of `a` and `b`, whose tokenizer has tokens for filling in the middle."""
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(9)}, unk_token="w0"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    model.add_special_tokens([*SPECIAL, "<|endoftext|>"])
    model.save(str(tmp_path / "words.json"))
    settings = {"tokenizer": str(tmp_path / "words.json")}
    a = tokenize("a", [f"w1 w2 w{i % 9}" for i in range(30)], **settings)
    b = tokenize("b", [f"w3 w{i % 9}" for i in range(30)], **settings)

    def run(out: str, **settings: Any) -> Mixture:
        stage = STAGE.build(MixConfig(**settings), [f"a={a.folder}", f"b={b.folder}"], None)
        return build_stage(stage, str(tmp_path / out), LocalExecutor(1)).loaded

    return run


@pytest.fixture
def mixture(mix: Callable[..., Mixture]) -> Mixture:
    later = StageRules(from_tokens=5_000, weights={"a": Decimal(1), "b": Decimal(1)})
    return mix("m.json", weights={"a": 1, "b": 3}, seed=3, validation_share=0.2, fim={"a": 0.5}, stages=(later,))


def forged(mixture: Mixture, **fields: Any) -> Mixture:
    return publish(mixture.manifest.model_copy(update=fields), mixture.folder, Path(mixture.url).name)


def first_source(**fields: Any) -> Callable[[MixtureManifest], dict[str, Any]]:
    return lambda m: {"sources": (m.sources[0].model_copy(update=fields), *m.sources[1:])}


def last_stage(**fields: Any) -> Callable[[MixtureManifest], dict[str, Any]]:
    return lambda m: {"stages": (*m.stages[:-1], m.stages[-1].model_copy(update=fields))}


FORGED: dict[str, tuple[Callable[[MixtureManifest], dict[str, Any]], str]] = {
    "seed": (lambda m: {"seed": 4}, "seed is 4, but its config asks for 3"),
    "config": (lambda m: {"config": m.config | {"seed": 4}}, "seed is 3, but its config asks for 4"),
    "no config": (lambda m: {"config": {}}, "config: sources: Field required"),
    "share": (
        lambda m: {"validation_share": 0.2 + 1e-12},
        r"validation_share is 0\.20000000000.*, but its config asks for 0\.2;",
    ),
    "name": (first_source(name="z"), "sources are z, b, but its config asks for a, b"),
    "fim_rate": (first_source(fim_rate=0.4), "source 'a': fim_rate is 0.4, but its config asks for 0.5"),
    "spm": (first_source(fim_spm_share=0.4), "source 'a': fim_spm_share is 0.4, but its config asks for 0.5"),
    "weights": (
        lambda m: last_stage(weights=(m.stages[-1].weights[0] + 1, m.stages[-1].weights[1] - 1))(m),
        r"stages.1.weights is \(549755813889, 549755813887\), but its config comes to \(549755813888, 549755813888\)",
    ),
    "first_token": (last_stage(first_token=6_000), "stages.1.first_token is 6000, but its config comes to 5000"),
    "stage name": (last_stage(name="x"), "stages.1.name is x, but its config comes to stage-2"),
    "a stage less": (lambda m: {"stages": m.stages[:1]}, "1 stages, but its config comes to 2"),
    "fim": (lambda m: {"fim": FimTokens(prefix=9, middle=11, suffix=10)}, "fim is prefix 9, middle 11, suffix 10, but"),
    "fim not its own": (lambda m: {"fim": FimTokens(prefix=9, middle=9, suffix=9)}, "three ids of their own below 13"),
    "fim too high": (lambda m: {"fim": FimTokens(prefix=9, middle=10, suffix=13)}, "three ids of their own below 13"),
    "rows": (lambda m: {"padded_vocab_size": 14}, "padded_vocab_size is 14, but its sources need 13"),
    "counts": (lambda m: {"counts": m.counts.model_copy(update={"tokens": 1})}, "counts.tokens is 1, but its sources"),
    "continues": (
        lambda m: {"continues": (Continued(digest="0" * 64, until_token=9),)},
        "continues 000000000000… until token 9, but its config asks for none",
    ),
}


def test_what_was_mixed_has_no_problem(mixture: Mixture) -> None:
    checked = Checked()
    assert find_problems(mixture, checked=checked) == []
    assert len(checked.notes) == 1


@pytest.mark.parametrize("what", FORGED)
def test_what_the_config_does_not_ask_for_is_named(mixture: Mixture, what: str) -> None:
    fields, message = FORGED[what]
    found = find_problems(forged(mixture, **fields(mixture.manifest)))
    assert any(re.search(message, problem) for problem in found), found


def test_one_that_goes_on_is_solved_from_there(mix: Callable[..., Mixture], mixture: Mixture) -> None:
    onward = mix("n.json", continues=mixture.url, continue_from=7_000, max_epochs=50, tokens=9_000)
    checked = Checked()
    assert find_problems(onward, checked=checked) == []
    assert "stages before token 7,000 were not compared with the mixture" in checked.notes[0]
    assert len(onward.manifest.stages) == 3
    weights = onward.manifest.stages[-1].weights[::-1]
    (problem,) = find_problems(forged(onward, **last_stage(weights=weights)(onward.manifest)))
    assert "stages.2.weights is" in problem
    (continued,) = onward.manifest.continues
    twice = (continued.model_copy(update={"until_token": 8_000}), continued)
    (problem,) = find_problems(forged(onward, continues=twice))
    assert "an older mixture stands with a later token" in problem
    found = find_problems(forged(onward, continues=()))
    assert any(re.search("continues no mixture, but its config asks for .* until token 7000", p) for p in found)


def test_what_another_version_mixed_is_not_compared_and_that_is_said(mixture: Mixture) -> None:
    older = forged(mixture, stage=StageRef(name="mix", version=1), seed=4)
    checked = Checked()
    assert find_problems(older, checked=checked) == []
    assert "not compared with its config, as mix version 1 wrote it" in checked.notes[0]
