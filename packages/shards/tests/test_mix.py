"""Mixing: what weights are taken, what they come to, and which are refused by the name of their source."""

import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from pydantic import ValidationError

from tokenmill_core.build import build_stage
from tokenmill_core.errors import ConfigError, InputError, TokenmillError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.lineage import trace_lineage
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, load_input
from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_core.named_sources import parse_source
from tokenmill_shards.formats.places import read_hashes
from tokenmill_shards.mixing.figures import figures
from tokenmill_shards.mixing.mix import STAGE
from tokenmill_shards.mixing.request import MixConfig
from tokenmill_shards.mixing.shares import DENOMINATOR
from tokenmill_shards.mixture import Mixture
from tokenmill_shards.reading.store import shard_tokens

Tokenize = Callable[..., LoadedManifest[TokensManifest]]
Mix = Callable[..., LoadedManifest[MixtureManifest]]


@pytest.fixture
def mix(tmp_path: Path) -> Mix:
    """mix("a=DIR:1", …, **settings): the mixture."""

    def run(*sources: str, out: str = "mixture.json", name: str | None = None, **settings: Any) -> Any:
        stage = STAGE.build(MixConfig(**settings), list(sources), name)
        return build_stage(stage, str(tmp_path / out), LocalExecutor(1)).loaded

    return run


@pytest.fixture
def a(tokenize: Tokenize) -> str:
    return tokenize("a", ["The quick brown fox jumps over the lazy dog. " * 30] * 3).folder


@pytest.fixture
def b(tokenize: Tokenize) -> str:
    return tokenize("b", ["It sleeps by the river. " * 10]).folder


@pytest.fixture
def empty(tokenize: Tokenize) -> str:
    return tokenize("empty", []).folder


def highest_hash(folder: str) -> int:
    return max(read_hashes(Path(folder) / "shard-00000.documents.parquet").tolist())


def shares(mixture: LoadedManifest[MixtureManifest]) -> dict[str, float]:
    """Of the first stage."""
    (weights, *_) = (stage.weights for stage in mixture.manifest.stages)
    return {s.name: w / DENOMINATOR for s, w in zip(mixture.manifest.sources, weights, strict=True)}


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (("0.001", "0.999"), (0.001, 0.999)),
        (("0", "1"), (0, 1)),
        (("0.2", "0.5"), (2 / 7, 5 / 7)),
        (("10", "20"), (1 / 3, 2 / 3)),
        (("1e-3", "1E3"), (1e-6, 1 - 1e-6)),
        ((".5", "1_0"), (0.5 / 10.5, 10 / 10.5)),
    ],
)
def test_positive_weights_are_normalised_whatever_they_sum_to(
    mix: Mix, a: str, b: str, weights: tuple[str, str], expected: tuple[float, float]
) -> None:
    mixture = mix(f"a={a}:{weights[0]}", f"b={b}:{weights[1]}")
    assert list(shares(mixture).values()) == pytest.approx(expected, abs=2 / DENOMINATOR)
    assert mixture.manifest.denominator == DENOMINATOR == sum(mixture.manifest.stages[0].weights)


def test_a_weight_of_zero_is_never_sampled(mix: Mix, a: str, b: str, empty: str) -> None:
    mixture = mix(f"a={a}:0", f"b={b}:1", f"c={empty}:0")
    assert set(Mixture(mixture.manifest, 8).locate(np.arange(5000)).source.tolist()) == {1}


@pytest.mark.parametrize(
    ("sources", "error", "message"),
    [
        (("a={a}:-1", "b={b}:1"), ConfigError, r"source 'a': weight '-1' is not a number of 0 or more"),
        (("a={a}:1", "b={b}:nan"), ConfigError, r"source 'b': weight 'nan' is not a number of 0 or more"),
        (("a={a}:1", "b={b}:inf"), ConfigError, r"source 'b': weight 'inf' is not a number of 0 or more"),
        (("a={a}:0.5x", "b={b}:1"), ConfigError, r"source 'a': weight '0\.5x' is not a number of 0 or more"),
        (("a={a}:", "b={b}:1"), ConfigError, r"source 'a': weight '' is not a number of 0 or more"),
        (("a={a}:0", "b={b}:0"), ConfigError, r"all weights are 0: give at least one source a weight above 0"),
        (("a={a}:0.5", "b={b}"), ConfigError, r"source 'b' has no weight, but others have"),
        (("a={a}:1", "c={empty}:1"), InputError, r"source 'c' has no documents: leave it out, or give it weight 0"),
        (("a={a}", "c={empty}"), InputError, r"source 'c' has no documents"),
        (("a={a}", "a={b}"), ConfigError, r"source 'a' is named twice"),
        (("a={a}", "twin={a}"), ConfigError, r"sources 'a' and 'twin' are the same dataset"),
        (("{a}",), ConfigError, r"expected NAME=PATH or NAME=PATH:WEIGHT"),
        (("=x",), ConfigError, r"expected NAME=PATH"),
        (("a=",), ConfigError, r"expected NAME=PATH"),
        ((), ConfigError, r"no source given"),
        (("a={a}/nowhere",), TokenmillError, r"nowhere: no such file or folder"),
    ],
)
def test_what_cannot_be_mixed_is_refused_by_the_name_of_its_source(
    mix: Mix, tmp_path: Path, a: str, b: str, empty: str, sources: tuple[str, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        mix(*(source.format(a=a, b=b, empty=empty) for source in sources))
    assert not (tmp_path / "mixture.json").exists()


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"temperature": -1}, {"temperature": math.nan}])
def test_a_temperature_is_above_zero(settings: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="temperature"):
        MixConfig.model_validate(settings)


@pytest.mark.parametrize("share", [-0.1, 1.0, math.nan])
def test_a_validation_share_leaves_something_to_train_on(share: float) -> None:
    with pytest.raises(ValidationError, match="validation_share"):
        MixConfig(validation_share=share)


def test_sources_of_other_tokenizers_types_or_ends_are_refused(
    mix: Mix, a: str, tokenize: Tokenize, wide_tokenizer: Callable[[int], Path]
) -> None:
    other = tokenize("other", ["w1 w2"], tokenizer=str(wide_tokenizer(70_000))).folder
    with pytest.raises(InputError, match=r"source 'b' has tokenizer .*, but 'a' has .*: tokenize them with the same"):
        mix(f"a={a}", f"b={other}")
    unclosed = tokenize("unclosed", ["no end here"], append_end_of_document=False).folder
    with pytest.raises(InputError, match="source 'b' has end_of_document_id None, but 'a' has 0"):
        mix(f"a={a}", f"b={unclosed}")


def test_without_weights_the_size_is_the_number_of_tokens(mix: Mix, a: str, b: str) -> None:
    mixture = mix(f"a={a}", f"b={b}")
    tokens = {source.name: source.tokens for source in mixture.manifest.sources}
    total = sum(tokens.values())
    assert shares(mixture) == pytest.approx({name: n / total for name, n in tokens.items()}, abs=1e-11)
    warm = shares(mix(f"a={a}", f"b={b}", temperature=3.3, out="warm.json"))
    ratio = (tokens["a"] / tokens["b"]) ** (1 / 3.3)
    assert warm["a"] / warm["b"] == pytest.approx(ratio, rel=1e-9)


def test_the_order_of_sources_changes_nothing(mix: Mix, tmp_path: Path, a: str, b: str) -> None:
    mix(f"a={a}", f"b={b}", out="one.json")
    mix(f"b={b}", f"a={a}", out="two.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


def test_a_mixture_counts_what_it_mixes_and_leads_to_the_raw_files(mix: Mix, a: str, b: str) -> None:
    mixture = mix(f"a={a}", f"b={b}", name="both")
    counts, sources = mixture.manifest.counts, mixture.manifest.sources
    assert counts.documents == sum(source.documents for source in sources) == 4
    assert counts.tokens == sum(source.tokens for source in sources) > 100
    tree = trace_lineage(mixture)
    assert [child.name for child in tree.inputs] == ["a", "b"]
    assert not any(child.problem for child in tree.inputs)
    assert [leaf.kind for leaf in tree.inputs[0].inputs] == ["raw", "tokenizer"]
    assert mixture.manifest.tokenizer_sha256 == load_input(mixture, 0).manifest.tokenizer_sha256


@pytest.mark.parametrize(
    ("argument", "name", "path", "weight"),
    [
        ("web=data/web", "web", "data/web", None),
        ("web=data/web:0.8", "web", "data/web", Decimal("0.8")),
        ("web=s3://bucket/web", "web", "s3://bucket/web", None),
        ("web=s3://bucket/web:2", "web", "s3://bucket/web", Decimal(2)),
        ("web=odd=name", "web", "odd=name", None),
        ("web=at:noon/", "web", "at:noon/", None),
        ("web=at:noon/:3e2", "web", "at:noon/", Decimal(300)),
    ],
)
def test_parts_of_a_source(argument: str, name: str, path: str, weight: Decimal | None) -> None:
    source = parse_source(argument)
    assert (source.name, source.path, source.weight) == (name, path, weight)


def test_a_mixture_knows_its_shards_masks_and_ids(mix: Mix, tokenize: Tokenize) -> None:
    rows = [{"text": f"dog {i} " * 9, "answer": [[0, 3]]} for i in range(4)]
    masked = tokenize("masked", rows, loss_mask="answer", shard_bytes=100)
    mixture = mix(f"m={masked.folder}").manifest
    source = mixture.sources[0]
    assert len(source.shard_tokens) == len(masked.manifest.shards) > 1
    assert source.shard_tokens == shard_tokens(masked.manifest)
    assert source.tokens == sum(source.shard_tokens) == masked.manifest.counts.tokens
    assert source.loss_mask
    assert (source.held_out_tokens, source.held_out_documents, source.fim_rate) == ((), 0, 0)
    assert (mixture.dtype, mixture.end_of_document_id) == (masked.manifest.dtype, 0)


def test_a_longer_run_of_an_unbounded_mixture_is_the_same_mixture(mix: Mix, a: str, b: str) -> None:
    digests = {
        mix(f"a={a}", f"b={b}", out=f"{tokens}.json", tokens=tokens).manifest.digest
        for tokens in (None, "10k", 10_000, "1T")
    }
    assert len(digests) == 1
    bounded = [mix(f"a={a}", f"b={b}", out=f"b{n}.json", tokens=n, max_epochs=9).manifest for n in (300, 400)]
    assert bounded[0].digest != bounded[1].digest
    assert [mixture.config["tokens"] for mixture in bounded] == [300, 400]


def test_names_of_sources_tell_mixtures_apart(mix: Mix, a: str, b: str) -> None:
    one, two = mix(f"a={a}", f"b={b}", name="m"), mix(f"b={a}", f"a={b}", name="m", out="two.json")
    assert one.manifest.digest != two.manifest.digest


def test_fixed_epochs_of_all_sources_are_the_budget(mix: Mix, tmp_path: Path, a: str, b: str) -> None:
    mixture = mix(f"a={a}", f"b={b}", epochs={"a": 1, "b": "2.5"}).manifest
    drawn = [mixture.sources[0].tokens, 2.5 * mixture.sources[1].tokens]
    assert [weight / DENOMINATOR for weight in mixture.stages[0].weights] == pytest.approx(
        [tokens / sum(drawn) for tokens in drawn], abs=1e-11
    )
    total = math.ceil(sum(drawn))
    assert mix(f"a={a}", f"b={b}", epochs={"a": 1, "b": "2.5"}, tokens=total).manifest == mixture
    with pytest.raises(ConfigError, match=rf"--tokens {total + 1}: .* training ends after {total} tokens: --tokens"):
        mix(f"a={a}", f"b={b}", epochs={"a": 1, "b": "2.5"}, tokens=total + 1, out="other.json")
    assert not (tmp_path / "other.json").exists()


@pytest.fixture
def many(tokenize: Tokenize) -> str:
    """40 documents of 14 words each."""
    return tokenize("many", [f"The quick brown fox number {i} jumps over the lazy dog. " for i in range(40)]).folder


def test_sizes_are_what_is_left_of_training_after_the_held_out(mix: Mix, many: str, a: str, tmp_path: Path) -> None:
    mixture = mix(f"many={many}", validation_share=0.3).manifest
    source = mixture.sources[0]
    assert 0 < source.held_out_documents < 40
    assert 0 < source.num_held_out_tokens < source.tokens
    assert source.training_tokens == source.tokens - sum(source.held_out_tokens)
    total = source.training_tokens
    assert mix(f"many={many}", validation_share=0.3, max_epochs=2, tokens=2 * total, out="b.json").manifest.digest
    with pytest.raises(ConfigError, match=f"allow {2 * total:,} tokens, but there are {2 * total + 1:,}"):
        mix(f"many={many}", validation_share=0.3, max_epochs=2, tokens=2 * total + 1, out="c.json")
    with pytest.raises(InputError, match=r"a validation share of 1e-09 holds out 0 of the 3 documents"):
        mix(f"a={a}", validation_share=1e-9, out="d.json")
    all_of_one = next(share for share in (0.5, 0.9, 0.99, 0.999, 0.9999) if share > highest_hash(a) / 2**64)
    with pytest.raises(
        InputError,
        match=r"source 'a' has nothing to train on, .* all of its 3 documents.*: leave it out, or give it weight",
    ):
        mix(f"a={a}:1", f"many={many}:1", validation_share=all_of_one, out="d.json")
    unused = mix(f"a={a}:0", f"many={many}:1", validation_share=0.3, out="e.json").manifest
    assert unused.stages[0].weights == (0, DENOMINATOR), "a source that is not drawn from may hold out anything"


def test_a_source_too_small_for_the_share_trains_and_has_no_validation_set(mix: Mix, many: str, b: str) -> None:
    old = mix(f"many={many}", validation_share=0.1, out="old.json")
    assert old.manifest.sources[0].held_out_documents
    new = mix(f"b={b}:1", f"many={many}:1", continues=old.url, continue_from=1000, out="new.json").manifest
    source = new.sources[0]
    assert (source.name, source.held_out_documents, source.training_tokens) == ("b", 0, source.tokens)
    (warning,) = [each for each in figures(new, 2000, 8).warnings if "validation" in each]
    assert warning == (
        "source 'b': a validation share of 0.1 holds out none of its documents (1), so it has no validation set of its "
        "own; that takes about 10"
    )


def test_names_of_no_source_are_refused(mix: Mix, a: str) -> None:
    for settings in (
        {"epochs": {"b": 1}},
        {"max_share": {"b": 1}},
        {"fim": {"b": 1}},
        {"stages": [{"from_tokens": 1, "weights": {"b": 1}}]},
    ):
        with pytest.raises(ConfigError, match="no source is called 'b': the sources are a"):
            mix(f"a={a}", **settings)


def test_weights_stand_with_the_sources_or_in_the_settings(mix: Mix, a: str, b: str) -> None:
    one = mix(f"a={a}:0.25", f"b={b}:0.75")
    two = mix(f"a={a}", f"b={b}", weights={"a": "0.25", "b": "0.75"}, out="two.json")
    assert one.manifest == two.manifest
    with pytest.raises(ConfigError, match="weights of their own, NAME=DIR:WEIGHT: give them in one place"):
        mix(f"a={a}:1", f"b={b}:1", weights={"a": 1})


# Filling in the middle


@pytest.fixture
def fim_tokenizer(tmp_path: Path) -> Callable[..., Path]:
    """fim_tokenizer("<PRE>", …): a tokenizer.json of a few words and these special tokens."""

    def write(*special: str) -> Path:
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"w0": 0, "w1": 1}, unk_token="w0"))
        made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        made.add_special_tokens(["<eos>", *special])
        path = tmp_path / "fim.json"
        made.save(str(path))
        return path

    return write


@pytest.mark.parametrize(
    "special",
    [
        ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
        ("<fim_prefix>", "<fim_middle>", "<fim_suffix>"),
        ("<PRE>", "<MID>", "<SUF>"),
        ("<｜fim▁begin｜>", "<｜fim▁end｜>", "<｜fim▁hole｜>"),
    ],
)
def test_usual_tokens_for_filling_in_the_middle_are_found(
    mix: Mix, tokenize: Tokenize, fim_tokenizer: Callable[..., Path], special: tuple[str, ...]
) -> None:
    prefix, middle, suffix = special
    path = str(fim_tokenizer(suffix, prefix, middle))
    one, two = (tokenize(name, ["w0 w1", f"w1 {name}"], tokenizer=path).folder for name in ("one", "two"))
    mixture = mix(f"one={one}", f"two={two}", fim={"one": 0.5}, fim_spm_share=0.25).manifest
    assert mixture.fim is not None
    assert (mixture.fim.suffix, mixture.fim.prefix, mixture.fim.middle) == (3, 4, 5)
    assert [(source.fim_rate, source.fim_spm_share) for source in mixture.sources] == [(0.5, 0.25), (0, 0.25)]
    named = mix(f"one={one}", fim=1, fim_tokens=(middle, prefix, suffix), out="named.json").manifest
    assert named.fim is not None
    assert (named.fim.prefix, named.fim.middle, named.fim.suffix) == (5, 4, 3)
    assert named.sources[0].fim_rate == 1


def test_tokens_that_the_tokenizer_lacks_are_refused(
    mix: Mix, tokenize: Tokenize, fim_tokenizer: Callable[..., Path]
) -> None:
    one = tokenize("one", ["w0 w1"], tokenizer=str(fim_tokenizer("<PRE>", "<SUF>"))).folder
    with pytest.raises(InputError, match=r"none of the usual tokens .*; give --fim-tokens .*'<PRE>', '<SUF>'"):
        mix(f"one={one}", fim=0.5)
    with pytest.raises(InputError, match=r"no special token 'w1' for filling in the middle; name one of"):
        mix(f"one={one}", fim=0.5, fim_tokens=("<PRE>", "w1", "<SUF>"))
    with pytest.raises(InputError, match=r"fim_tokens <PRE>,<PRE>,<SUF>: .* need a token each"):
        mix(f"one={one}", fim=0.5, fim_tokens=("<PRE>", "<PRE>", "<SUF>"))
    assert mix(f"one={one}", fim=0).manifest.fim is None
