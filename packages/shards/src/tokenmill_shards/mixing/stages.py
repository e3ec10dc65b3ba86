"""The stages of a mixture, one after another: what a stage may draw depends on what those before it drew."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from tokenmill_core.errors import ConfigError
from tokenmill_core.mixture_manifest import MixtureStage
from tokenmill_shards.mixing.demand import Demand, Span
from tokenmill_shards.mixing.request import MixRequest, MixSettings, ShareRules, StageRules
from tokenmill_shards.mixing.shares import DENOMINATOR, SourceSize, integer_weights


def solve_stages(
    request: MixRequest,
    sources: Sequence[SourceSize],
    earlier: Sequence[MixtureStage] = (),
    denominator: int = DENOMINATOR,
) -> tuple[MixtureStage, ...]:
    """The stages of `request`, behind those of an `earlier` mixture that it goes on with.

    Raises:
        ConfigError: they overlap or pass the budget, or the shares of one cannot be met.
        InputError: a source that should be drawn from has no tokens.
    """
    asked = _asked(request, len(earlier))
    _refuse_overlap(asked, request.tokens)
    stops = [stage.first for stage in asked[1:]] + [request.tokens]
    stages, drawn = list(earlier), _drawn(earlier, asked[0].first, len(sources), denominator)
    for stage, stop in zip(asked, stops, strict=True):
        label = stage.name if len(asked) > 1 else ""
        span = Span(label, stage.first, stop, is_last=stage is asked[-1])
        amounts = Demand.of(stage.rules, span, sources, drawn, request.left_out).solve()
        weights = integer_weights(amounts, [source.tokens for source in sources], denominator)
        stages.append(MixtureStage(name=stage.name, first_token=stage.first, weights=tuple(weights)))
        length = sum(amounts, Fraction(0))
        drawn = [before + Fraction(w, denominator) * length for before, w in zip(drawn, weights, strict=True)]
    return tuple(stages)


def needs_tokens(request: MixRequest, sources: Sequence[SourceSize], num_earlier: int = 0) -> bool:
    """Whether the weights depend on the token budget; `num_earlier` stages of another mixture come before.

    Errors: as those of `solve_stages`, as far as they do not need to know how much each source has.
    """
    asked = _asked(request, num_earlier)
    _refuse_overlap(asked, request.tokens)
    last = asked[-1]
    span = Span(last.name, last.first, None, is_last=True)
    return Demand.of(last.rules, span, sources, [Fraction(0)] * len(sources), request.left_out).needs_length


def stage_rules(settings: MixSettings) -> list[ShareRules]:
    """The rules of each stage that `settings` ask for, with the bounds that it is handed down."""
    return [settings, *(_with_bounds_of(settings, stage) for stage in settings.stages)]


class _Asked(NamedTuple):
    name: str
    first: int
    rules: ShareRules


def _asked(request: MixRequest, num_earlier: int) -> list[_Asked]:
    """The stages of the request itself."""
    first, *later = stage_rules(request)
    asked = [_Asked(f"stage-{num_earlier + 1}", request.continues.until_token if request.continues else 0, first)]
    for number, (stage, rules) in enumerate(zip(request.stages, later, strict=True), num_earlier + 2):
        asked.append(_Asked(stage.name or f"stage-{number}", stage.from_tokens, rules))
    return asked


def _with_bounds_of(whole: ShareRules, stage: StageRules) -> ShareRules:
    bounds = {name: getattr(stage, name) or getattr(whole, name) for name in ("max_epochs", "max_share")}
    return stage.model_copy(update=bounds)


def _refuse_overlap(stages: Sequence[_Asked], tokens: int | None) -> None:
    for before, stage in pairwise(stages):
        if stage.first <= before.first:
            raise ConfigError(
                f"stage {stage.name!r} begins at {stage.first} tokens, but the one before it at {before.first}: give "
                f"stages in order, this one from {before.first + 1} on"
            )
    last = stages[-1]
    if tokens is not None and tokens <= last.first:
        raise ConfigError(
            f"--tokens {tokens}: training would end before stage {last.name!r} begins at {last.first}; the budget is "
            f"that of the whole run: --tokens {last.first + 1} at least"
        )


def _drawn(stages: Sequence[MixtureStage], end: int, num_sources: int, denominator: int) -> list[Fraction]:
    """Tokens of each source in `stages`, the last of which ends at token `end`."""
    drawn = [Fraction(0)] * num_sources
    stops = [stage.first_token for stage in stages[1:]] + [end]
    for stage, stop in zip(stages, stops, strict=False):
        length = stop - stage.first_token
        drawn = [before + Fraction(w, denominator) * length for before, w in zip(drawn, stage.weights, strict=True)]
    return drawn
