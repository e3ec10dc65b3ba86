"""Stages solved for sources of stated sizes: published mixtures, bounds, and requests that cannot be met."""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.mixture_manifest import MixtureStage
from tokenmill_shards.mixing.request import MixRequest
from tokenmill_shards.mixing.shares import DENOMINATOR, SourceSize
from tokenmill_shards.mixing.stages import needs_tokens, solve_stages

ABC = {"a": 1000, "b": 2000, "c": 4000}


def sized(tokens: dict[str, int]) -> list[SourceSize]:
    """Sources with a tenth as many documents as tokens, and 4 bytes a token."""
    return [SourceSize(name, count, count // 10, count * 4) for name, count in tokens.items()]


def solve(sources: dict[str, int], /, **request: Any) -> tuple[MixtureStage, ...]:
    return solve_stages(MixRequest(sources=tuple(sources), **request), sized(sources))


def shares(sources: dict[str, int], /, **request: Any) -> list[float]:
    """Of the last stage."""
    return [weight / DENOMINATOR for weight in solve(sources, **request)[-1].weights]


# Published mixtures


def test_published_weights_of_the_pile() -> None:
    """Share ∝ size · epochs. The published sizes are rounded to hundredths of a GiB: tokens here."""
    parts = {"Pile-CC": (22712, "1"), "PMC": (9027, "2"), "Books3": (10096, "1.5"), "OpenWebText2": (6277, "2")}
    rest = 125420 - sum(size * Fraction(epochs) for size, epochs in parts.values())
    tokens = {name: size for name, (size, _) in parts.items()} | {"rest": int(rest)}
    percent = [100 * share for share in shares(tokens, epochs={n: e for n, (_, e) in parts.items()} | {"rest": 1})]
    assert percent[:4] == pytest.approx([18.11, 14.40, 12.07, 10.01], abs=0.006)


def test_worked_example_of_unimax() -> None:
    tokens = {
        "fao": 549707867,
        "isl": 10027573389,
        "ekk": 42541080893,
        "swe": 179955884499,
        "fas": 184595788282,
    }
    found = shares(tokens, method="unimax", max_epochs=4, tokens="250B")
    assert found == pytest.approx([0.008795, 0.160441, 0.276921, 0.276921, 0.276921], abs=5e-7)
    epochs = [share * 250e9 / count for share, count in zip(found, tokens.values(), strict=True)]
    assert epochs == pytest.approx([4.0, 4.0, 1.627, 0.385, 0.375], abs=5e-4)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"general": 50, "maths": 25, "code": 17, "multilingual": 8}, [0.5, 0.25, 0.17, 0.08]),
        ({"web": 84.8, "code": 12.5, "maths": 2.7}, [0.848, 0.125, 0.027]),
        ({"web": 76.6, "code": 14.3, "maths": 9.1}, [0.766, 0.143, 0.091]),
        # Published as they are: 100.5 in sum, and so normalised.
        ({"web": 64.5, "code": 23.3, "maths": 12.7}, [0.645 / 1.005, 0.233 / 1.005, 0.127 / 1.005]),
    ],
)
def test_published_shares_are_normalised(weights: dict[str, float], expected: list[float]) -> None:
    tokens = dict.fromkeys(weights, 1000)
    assert shares(tokens, weights=weights) == pytest.approx(expected, abs=1 / DENOMINATOR)


def test_published_stages_of_smollm3() -> None:
    tokens = {"web": 9_000, "code": 2_000, "maths": 1_000}
    parts = [(84.8, 12.5, 2.7), (76.6, 14.3, 9.1), (64.5, 23.3, 12.7)]
    first, *later = [dict(zip(tokens, part, strict=True)) for part in parts]
    stages = solve(
        tokens,
        weights=first,
        stages=[{"from_tokens": f"{8 + 2 * i}T", "weights": weights} for i, weights in enumerate(later)],
    )
    assert [(stage.name, stage.first_token) for stage in stages] == [
        ("stage-1", 0),
        ("stage-2", 8 * 10**12),
        ("stage-3", 10**13),
    ]
    for stage, part in zip(stages, parts, strict=True):
        found = [weight / DENOMINATOR for weight in stage.weights]
        assert found == pytest.approx([share / sum(part) for share in part], abs=1e-11)


# One stage


def test_sizes_are_tokens_documents_or_bytes() -> None:
    sources = [SourceSize("a", 100, 30, 9), SourceSize("b", 300, 10, 1)]
    for unit, expected in (("tokens", 0.25), ("documents", 0.75), ("bytes", 0.9)):
        stage = solve_stages(MixRequest(sources=("a", "b"), unit=unit), sources)[0]
        assert stage.weights[0] / DENOMINATOR == pytest.approx(expected, abs=1e-12)


def test_what_a_bound_takes_goes_to_the_others_in_proportion() -> None:
    assert shares(ABC, max_share={"c": "0.4"}) == pytest.approx([0.2, 0.4, 0.4], abs=1e-12)
    assert shares(ABC, max_share={"c": "0.4", "b": "0.3"}) == pytest.approx([0.3, 0.3, 0.4], abs=1e-12)
    # The first bound pushes the second source over its own.
    assert shares(ABC, max_share={"c": "0.1"}, max_epochs={"b": 2}, tokens=10_000) == pytest.approx([0.5, 0.4, 0.1])


def test_fixed_epochs_come_first() -> None:
    assert shares(ABC, epochs={"a": 3}, tokens=9000) == pytest.approx([3 / 9, 2 / 9, 4 / 9], abs=1e-12)
    assert shares(ABC, epochs={"a": 3, "b": 0}, tokens=9000) == pytest.approx([3 / 9, 0, 6 / 9], abs=1e-12)
    assert shares(ABC, epochs=1) == pytest.approx([1 / 7, 2 / 7, 4 / 7], abs=1e-12)
    assert shares(ABC, epochs={"*": 1, "a": "2.5"}) == pytest.approx([2.5 / 8.5, 2 / 8.5, 4 / 8.5], abs=1e-12)


def test_uniform_takes_all_alike() -> None:
    assert shares(ABC, method="uniform") == pytest.approx([1 / 3] * 3, abs=1e-12)


AMOUNTS = st.fractions(Fraction(1, 10), 5, max_denominator=20).map(lambda value: str(float(round(value, 2))))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=6), st.data())
def test_bounds_hold_in_sum_over_all_stages(counts: list[int], data: st.DataObject) -> None:
    tokens = {f"s{i}": count for i, count in enumerate(counts)}
    most = data.draw(AMOUNTS)
    room = int(Fraction(most) * sum(counts))
    assume(room >= 3)
    first, second = sorted(data.draw(st.lists(st.integers(1, room), min_size=2, max_size=2, unique=True)))
    method = data.draw(st.sampled_from(["temperature", "uniform"]))
    stages = solve(
        tokens, method="uniform", max_epochs=most, tokens=second, stages=[{"from_tokens": first, "method": method}]
    )
    for number, count in enumerate(counts):
        drawn = sum(
            Fraction(stage.weights[number], DENOMINATOR) * length
            for stage, length in zip(stages, (first, second - first), strict=True)
        )
        assert drawn <= Fraction(most) * count + Fraction(second * (len(counts) + 1), DENOMINATOR)


def test_a_source_that_has_given_all_gives_nothing_more() -> None:
    stages = solve(
        ABC, weights={"a": 1}, max_epochs=4, tokens=8000, stages=[{"from_tokens": 4000, "method": "uniform"}]
    )
    assert stages[1].weights[0] == 0
    assert stages[1].weights[1] == stages[1].weights[2] == DENOMINATOR // 2


def test_a_stage_has_its_own_bounds_or_those_of_the_mixture() -> None:
    later = {"from_tokens": 10, "weights": {"a": 1, "b": 1}}
    assert [s.weights[0] / DENOMINATOR for s in solve(ABC, max_share={"a": "0.1"}, stages=[later])] == [
        pytest.approx(0.1, abs=1e-12),
        pytest.approx(0.1, abs=1e-12),
    ]
    own = later | {"max_share": {"a": "0.3"}, "name": "decay"}
    found = solve(ABC, max_share={"a": "0.1"}, stages=[own])[1]
    assert (found.name, found.weights[0] / DENOMINATOR) == ("decay", pytest.approx(0.3, abs=1e-12))


@pytest.mark.parametrize(
    ("request_", "depends"),
    [
        ({}, False),
        ({"temperature": 3.3, "max_share": {"a": "0.1"}}, False),
        ({"epochs": 2}, False),
        ({"epochs": {"a": 2}}, True),
        ({"max_epochs": 4}, True),
        ({"method": "unimax", "max_epochs": 4}, True),
        ({"max_epochs": {"a": 4}, "weights": {"b": 1}}, False),
        ({"epochs": {"a": 2}, "stages": [{"from_tokens": 100, "weights": {"b": 1}}]}, False),
        ({"stages": [{"from_tokens": 100, "max_epochs": {"b": 2}}]}, True),
    ],
)
def test_weights_depend_on_the_budget_only_where_epochs_bound_them(request_: dict[str, Any], depends: bool) -> None:
    request = MixRequest(sources=tuple(ABC), **request_)
    assert needs_tokens(request, sized(ABC)) is depends
    if depends:
        with pytest.raises(ConfigError, match="give --tokens, such as --tokens 10B"):
            solve_stages(request, sized(ABC))


# What cannot be met


def said(sources: dict[str, int], /, **request: Any) -> str:
    with pytest.raises(ConfigError) as refusal:
        solve(sources, **request)
    return str(refusal.value)


def options(message: str) -> list[dict[str, Any]]:
    """The requests that a refusal proposes, one after another."""
    proposals = re.split(r", or |: (?=--|begin)", message)
    found = []
    for proposal in proposals:
        pairs = re.findall(r"--([a-z-]+) (?:(\w+)=)?([0-9.]+)", proposal)
        own: dict[str, Any] = {}
        for option, name, number in pairs:
            key = option.replace("-", "_")
            own[key] = own.get(key, {}) | {name: number} if name else number
        found += [own] if own else []
    return found


def merged(request: dict[str, Any], proposal: dict[str, Any]) -> dict[str, Any]:
    """`request` with what a refusal proposes: one value for all in place of those of single sources."""
    asked = MixRequest(sources=tuple(ABC), **request).model_dump(exclude={"sources"})
    for option, value in proposal.items():
        asked[option] = asked[option] | value if isinstance(value, dict) else value
    return asked


REFUSED: list[tuple[dict[str, Any], str, int]] = [
    ({"method": "unimax", "max_epochs": 4, "tokens": 30_000}, "allow 28,000 tokens, but there are 30,000", 2),
    ({"max_epochs": {"a": 1, "b": "1.5", "c": 2}, "tokens": 20_000}, "allow 12,000 tokens", 2),
    ({"max_share": "0.3"}, "max_share allows 0.9 in all, below 1", 1),
    ({"max_share": {"a": "0.1", "b": "0.2", "c": "0.3"}, "tokens": 900}, "allow 0 tokens", 1),
    ({"max_share": {"a": "0.2", "b": "0.3"}, "max_epochs": {"c": 2}, "tokens": 20_000}, "allow 16,000 tokens", 1),
    ({"epochs": {"a": 3}, "max_epochs": 2, "tokens": 9000}, "'a' is to have 3 epochs, but max_epochs leaves it 2", 2),
    ({"epochs": {"a": 3}, "max_share": "0.5", "tokens": 4000}, "'a' come to a share of 0.75, above its max_share", 2),
    ({"epochs": {"a": 3, "b": 3}, "tokens": 4000}, "fixed epochs take 9,000 tokens, but there are 4,000", 2),
    ({"epochs": {"a": 1}, "max_epochs": {"b": 1, "c": 1}, "tokens": 8000}, "allow 7,000 tokens", 2),
]


@pytest.mark.parametrize(("request_", "reason", "num_proposals"), REFUSED)
def test_a_refusal_proposes_what_can_be_met(request_: dict[str, Any], reason: str, num_proposals: int) -> None:
    message = said(ABC, **request_)
    assert reason in message
    proposals = options(message)
    assert len(proposals) == num_proposals
    for proposal in proposals:
        assert sum(solve(ABC, **merged(request_, proposal))[0].weights) == DENOMINATOR


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            {"max_share": {"a": "0.3"}, "max_epochs": {"a": 1, "b": "0.000001", "c": "0.000001"}, "tokens": 50_000},
            "max_epochs and max_share allow 0 tokens, but there are 50,000; what binds is max_epochs of 'a', "
            "max_epochs of 'b', max_epochs of 'c'",
        ),
        (
            {"epochs": {"a": 3}, "max_epochs": {"a": 2, "b": 0, "c": 0}, "tokens": 9000},
            "source 'a' is to have 3 epochs, but max_epochs leaves it 2",
        ),
    ],
)
def test_what_would_be_refused_again_is_not_proposed(request_: dict[str, Any], message: str) -> None:
    assert said(ABC, **request_) == message


BOUNDS = st.dictionaries(st.sampled_from([*ABC]), st.sampled_from(["0", "0.3", "1", "4"]), max_size=3)


@given(st.sampled_from([1, 100, 5000, 7000, 10**6]), BOUNDS, BOUNDS, st.dictionaries(st.just("a"), st.just("3")))
def test_whatever_is_proposed_can_be_met(
    tokens: int, max_epochs: dict[str, str], max_share: dict[str, str], epochs: dict[str, str]
) -> None:
    shares_ = {name: min(share, "1") for name, share in max_share.items()}
    request = {"tokens": tokens, "max_epochs": max_epochs, "max_share": shares_, "epochs": epochs}
    try:
        solve(ABC, **request)
    except ConfigError as refusal:
        for proposal in options(str(refusal)):
            solve(ABC, **merged(request, proposal))


def test_the_proposed_budget_is_the_largest() -> None:
    request = {"max_share": {"a": "0.2", "b": "0.3"}, "max_epochs": {"c": 2}}
    (proposal,) = options(said(ABC, **request, tokens=20_000))
    assert proposal == {"tokens": "16000"}
    assert "allow 16,000" in said(ABC, **request, tokens=16_001)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            {"epochs": 2, "stages": [{"from_tokens": 100}]},
            r"stage 'stage-1': the epochs of all .* 14,000 tokens, but there are 100: begin the next stage at 14000",
        ),
        (
            {"max_epochs": 1, "stages": [{"from_tokens": 9000, "max_epochs": 3}], "tokens": 9001},
            r"stage 'stage-1': .* allow 7,000 tokens, but there are 9,000: begin the next stage at 7000 tokens, or "
            r"--max-epochs 1\.286",
        ),
        (
            {"max_epochs": 1, "stages": [{"from_tokens": 5000, "name": "end"}], "tokens": 8000},
            r"stage 'end': .* allow 2,000 tokens, but there are 3,000: --tokens 7000, or --max-epochs 1\.143",
        ),
        ({"stages": [{"from_tokens": 10}], "tokens": 10}, r"--tokens 10: .* 'stage-2' begins at 10; .* --tokens 11"),
        ({"stages": [{"from_tokens": 10}, {"from_tokens": 10}]}, r"'stage-3' begins at 10 .* this one from 11 on"),
        ({"weights": {"a": 0}}, "all weights are 0"),
        ({"epochs": 0}, "all weights are 0"),
        (
            {"max_epochs": {"a": 0, "b": 0}, "max_share": {"b": "0.5", "c": 0}, "tokens": 9},
            "^nothing may be drawn: 0 is max_epochs of 'a', max_epochs of 'b', max_share of 'c'; give one of them more",
        ),
        ({"max_epochs": 0}, "nothing may be drawn: 0 is max_epochs of 'a', "),
        ({"max_share": 0}, "nothing may be drawn: 0 is max_share of 'a', "),
        ({"stages": [{"from_tokens": 5, "max_epochs": 0}], "tokens": 9}, "stage 'stage-2': nothing may be drawn"),
        (
            {"max_share": {"a": "0.5", "b": "0.5"}, "max_epochs": {"c": 0}, "epochs": {"a": 1}, "tokens": 5000},
            "allow 2,000 tokens, but there are 5,000: --tokens 2000$",
        ),
        ({"stages": [{"from_tokens": 5, "weights": {"a": 0}}]}, "all weights are 0"),
        ({"weights": {"a": 0, "b": 1}, "epochs": {"a": 1}, "tokens": 9}, "source 'a' has weight 0 and fixed epochs"),
        ({"method": "unimax", "tokens": 9}, "method unimax needs a bound for every source: give --max-epochs"),
        ({"method": "unimax", "max_epochs": {"a": 1}, "tokens": 9}, "method unimax needs a bound for every source"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_remedy(request_: dict[str, Any], message: str) -> None:
    assert re.search(message, said(ABC, **request_))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"method": "uniform", "temperature": 2}, "method uniform takes all sources alike"),
        ({"method": "unimax", "weights": {"a": 1}}, "method unimax takes all sources alike"),
        ({"unit": "bytes", "weights": {"a": 1}}, "unit bytes counts sizes, but weights are given"),
        ({"max_share": {"a": "1.1"}}, "max_share.a"),
        ({"max_share": "nan"}, "max_share"),
        ({"max_epochs": -1}, "max_epochs"),
        ({"max_epochs": "1e99999999"}, "less than or equal to 1000000000"),
        ({"epochs": {"a": "1e20"}}, "less than or equal to 1000000000"),
        ({"max_share": {"a": "1e-99999999"}}, "1E-99999999 is too little: give 1e-12 at least, or 0"),
        ({"epochs": {"a": "1e-13"}}, "is too little"),
        ({"fim": {"a": "1e-99999999"}}, "is too little"),
        ({"epochs": {"a": "inf"}}, "epochs.a"),
        ({"tokens": "lots"}, "expected a number such as 300M"),
        ({"stages": [{"weights": {}}]}, "from_tokens"),
    ],
)
def test_settings_out_of_range_are_refused(request_: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MixRequest(sources=("a",), **request_)


@pytest.mark.parametrize("request_", [{}, {"epochs": 1}, {"weights": {"a": 1, "empty": 1}}])
def test_an_empty_source_is_drawn_from_only_with_weight_zero(request_: dict[str, Any]) -> None:
    tokens = {"a": 100, "empty": 0}
    with pytest.raises(InputError, match="source 'empty' has no documents: leave it out, or give it"):
        solve(tokens, **request_)
    assert shares(tokens, weights={"a": 1, "empty": 0}) == [1, 0]


def drawn_by(stages: Sequence[MixtureStage], source: int) -> list[int]:
    return [stage.weights[source] for stage in stages]


def test_sources_left_out_are_drawn_from_only_where_named() -> None:
    request = MixRequest(
        sources=tuple(ABC),
        left_out=("a",),
        epochs={"*": 1, "b": 2},
        stages=({"from_tokens": 8000, "temperature": 2}, {"from_tokens": 9000, "weights": {"a": 1}}),
    )
    stages = solve_stages(request, sized(ABC))
    assert drawn_by(stages, 0) == [0, 0, DENOMINATOR]
    assert all(drawn_by(stages, 1)[:2])
