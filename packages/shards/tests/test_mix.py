"""Mixing: what weights are taken, what they come to, and which are refused by the name of their source."""

import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tokenmill_core.build import build_stage
from tokenmill_core.errors import ConfigError, InputError, TokenmillError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.lineage import trace_lineage
from tokenmill_core.manifest import MixtureManifest, TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, load_input
from tokenmill_core.named_sources import parse_source
from tokenmill_shards import MixtureReader
from tokenmill_shards.mixing.mix import DENOMINATOR, STAGE, MixConfig, solve_weights

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


def shares(mixture: LoadedManifest[MixtureManifest]) -> dict[str, float]:
    return {source.name: source.weight / mixture.manifest.denominator for source in mixture.manifest.sources}


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
    assert mixture.manifest.denominator == DENOMINATOR == sum(s.weight for s in mixture.manifest.sources)


def test_a_weight_of_zero_is_never_sampled(mix: Mix, a: str, b: str, empty: str) -> None:
    mixture = mix(f"a={a}:0", f"b={b}:1", f"c={empty}:0")
    reader = MixtureReader.open(mixture.url, 8)
    assert set(reader.locate(np.arange(5000)).source.tolist()) == {1}


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


def test_published_shares_of_mc4() -> None:
    """α = 0.3 over millions of pages; the published percentages are of the whole set, so their ratios to English."""
    pages = {"en": 3067, "ru": 756, "es": 416, "de": 397, "fr": 333}
    published = {"en": 5.67, "ru": 3.71, "es": 3.09, "de": 3.05, "fr": 2.89}
    weights = dict(zip(pages, solve_weights([Decimal(n) for n in pages.values()], 1 / 0.3), strict=True))
    for language in pages:
        ratio = weights[language] / weights["en"]
        assert ratio == pytest.approx(published[language] / published["en"], rel=0.01)
        assert ratio == pytest.approx((pages[language] / pages["en"]) ** 0.3, rel=1e-9)


def test_published_weights_of_the_pile() -> None:
    """Share ∝ size · epochs, given as explicit weights."""
    parts = {"Pile-CC": (227.12, 1), "PMC": (90.27, 2), "Books3": (100.96, 1.5), "OpenWebText2": (62.77, 2)}
    rest = Decimal("1254.20") - sum(Decimal(str(size)) * Decimal(str(epochs)) for size, epochs in parts.values())
    sizes = [Decimal(str(size)) * Decimal(str(epochs)) for size, epochs in parts.values()]
    weights = solve_weights([*sizes, rest], 1.0)
    percent = [100 * weight / DENOMINATOR for weight in weights[:4]]
    # The published sizes are themselves rounded to hundredths.
    assert percent == pytest.approx([18.11, 14.40, 12.07, 10.01], abs=0.006)


SIZES = st.one_of(
    st.just(Decimal(0)),
    st.integers(1, 10),
    st.integers(10**15, 10**15 + 3),
    st.integers(1, 10**18),
    st.decimals(min_value=Decimal("1e-12"), max_value=Decimal(10**6), allow_nan=False, allow_infinity=False),
).map(Decimal)
TEMPERATURES = st.sampled_from([1e-9, 0.1, 0.5, 1.0, 3.3, 1e6, 1e300]) | st.floats(0.01, 100)


@settings(max_examples=300, deadline=None)
@given(st.lists(SIZES, min_size=1, max_size=12).filter(any), TEMPERATURES)
def test_solved_weights(sizes: list[Decimal], temperature: float) -> None:
    weights = solve_weights(sizes, temperature)
    assert sum(weights) == DENOMINATOR
    assert [weight > 0 for weight in weights] == [size > 0 for size in sizes]
    ranked = sorted(zip(sizes, weights, strict=True))
    for (small, low), (large, high) in itertools.pairwise(ranked):
        assert low <= high or small == large, "a larger source never gets less"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=8), st.floats(0.3, 50))
def test_solved_weights_are_the_shares_of_the_formula(sizes: list[int], temperature: float) -> None:
    weights = solve_weights([Decimal(size) for size in sizes], temperature)
    raised = [(size / max(sizes)) ** (1 / temperature) for size in sizes]
    for weight, value in zip(weights, raised, strict=True):
        # A source raised to 1 of 2^40 takes from the largest ones, at most one a source.
        assert weight / DENOMINATOR == pytest.approx(value / sum(raised), rel=1e-9, abs=len(sizes) / DENOMINATOR)


@pytest.mark.parametrize("factor", [Decimal("1e-30"), Decimal("0.7"), Decimal("1e40"), Decimal("1e9999999")])
def test_only_the_proportions_of_weights_count(factor: Decimal) -> None:
    sizes = [Decimal(3), Decimal(5), Decimal(7)]
    assert solve_weights([size * factor if factor < 10**50 else size.scaleb(900_000) for size in sizes], 2.0) == (
        solve_weights(sizes, 2.0)
    )


def test_a_higher_temperature_evens_out() -> None:
    sizes = [Decimal(1), Decimal(100)]
    small = [solve_weights(sizes, t)[0] for t in (0.5, 1.0, 2.0, 10.0, 1e6)]
    assert small == sorted(small)
    assert small[0] / DENOMINATOR == pytest.approx(1 / 10001, rel=1e-6)
    assert small[-1] / DENOMINATOR == pytest.approx(0.5, rel=1e-5)
