"""Requests that cannot be met: why, and the nearest that can, in numbers to type.

A remedy is solved before it is proposed, so that none is refused again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tokenmill_core.errors import ConfigError
from tokenmill_shards.mixing.amounts import LEAST, MAX_TOKENS, MOST, rounded_down, rounded_up
from tokenmill_shards.mixing.bounds import largest_total

if TYPE_CHECKING:
    from tokenmill_shards.mixing.demand import Demand

FIELDS = {"--epochs": "epochs", "--max-epochs": "max_epochs", "--max-share": "max_shares"}
"""What of a demand an option sets."""


def needs_budget(demand: Demand) -> ConfigError:
    """Epochs say nothing about shares as long as nobody knows of how many tokens."""
    if _allows_nothing(demand):
        return _nothing_drawn(demand)
    return _error(
        demand,
        "epochs bound the shares, so these depend on how long training is",
        "give --tokens, such as --tokens 10B",
    )


def fixed_epochs_differ(first: int, length: int, tokens: int) -> ConfigError:
    """Every source of the last stage, which begins at token `first`, has fixed epochs, and a budget says otherwise."""
    end = first + length
    return ConfigError(
        f"--tokens {tokens}: the epochs of all sources are fixed, and training ends after {end} tokens: "
        f"--tokens {end}, or leave it out, or leave one source without epochs"
    )


def stage_fixed(demand: Demand, spent: int, length: Fraction) -> ConfigError:
    """Every source of a stage has fixed epochs, and the next stage begins sooner or later than these end."""
    return _error(
        demand,
        f"the epochs of all sources are fixed and take {spent:,} tokens, but there are {math.floor(length):,}",
        *_lasting(demand, spent),
        "leave one source without epochs",
    )


def too_much_fixed(demand: Demand, spent: Fraction, length: Fraction) -> ConfigError:
    """Fixed epochs take more than there is."""
    scaled = {i: rounded_down(e * length / spent) for i, e in enumerate(demand.epochs) if e}
    return _error(
        demand,
        f"fixed epochs take {math.ceil(spent):,} tokens, but there are {math.floor(length):,}",
        *_lasting(demand, math.ceil(spent)),
        *_set(demand, "--epochs", scaled),
    )


def fixed_above_cap(demand: Demand, number: int, cap: Fraction) -> ConfigError:
    """One source has more fixed epochs than max_epochs leaves it."""
    name, tokens = demand.sources[number].name, demand.sources[number].tokens
    epochs, left = demand.epochs[number] or Fraction(0), rounded_down(cap / tokens)
    return _error(
        demand,
        f"source {name!r} is to have {rounded_up(epochs)} epochs, but max_epochs leaves it {left}",
        *_set(demand, "--epochs", {number: left}),
        *_set(demand, "--max-epochs", {number: rounded_up(epochs + demand.drawn[number] / tokens)}),
    )


def fixed_above_share(demand: Demand, number: int, most: Fraction, share: Fraction) -> ConfigError:
    """The fixed epochs of one source are more than max_share leaves it."""
    name, tokens = demand.sources[number].name, demand.sources[number].tokens
    return _error(
        demand,
        f"the epochs of source {name!r} come to a share of {rounded_up(share)}, above its max_share",
        *_set(demand, "--epochs", {number: rounded_down(most / tokens)}),
        *_set(demand, "--max-share", {number: rounded_up(share)}),
    )


def bounds_too_low(demand: Demand, length: Fraction) -> ConfigError:
    """Every source is bounded, and all bounds together are below the length."""
    drawn = [i for i, part in enumerate(demand.base) if part]
    spent = sum(demand.fixed, Fraction(0))
    caps, shares = [demand.caps[i] for i in drawn], [demand.max_shares[i] for i in drawn]
    if _allows_nothing(demand):
        return _nothing_drawn(demand)
    most = largest_total(spent, caps, [Fraction(1) if share is None else share for share in shares], length)
    remedies = list(_lasting(demand, math.floor(most))) if demand.span.stop is not None else []
    if all(share is None for share in shares):
        remedies += _raised(demand, "--max-epochs", drawn, length - spent)
    elif most < 1 or all(cap is None for cap in caps):
        remedies += _raised(demand, "--max-share", drawn, (length - spent) / length)
    if demand.span.stop is None:
        reason = f"max_share allows {rounded_down(sum((s for s in shares if s), Fraction(0)))} in all, below 1"
    else:
        reason = f"max_epochs and max_share allow {math.floor(most):,} tokens, but there are {math.floor(length):,}"
    return _error(demand, reason if remedies else f"{reason}; what binds is {_binding(demand, length)}", *remedies)


def _allows_nothing(demand: Demand) -> bool:
    bounds = zip(demand.base, demand.max_epochs, demand.max_shares, strict=True)
    return not any(demand.fixed) and all(0 in own for part, *own in bounds if part)


def _nothing_drawn(demand: Demand) -> ConfigError:
    return _error(demand, f"nothing may be drawn: 0 is {_binding(demand, Fraction(1))}; give one of them more")


def _binding(demand: Demand, length: Fraction) -> str:
    """The lower bound of each source that is drawn from."""
    lower = []
    for part, cap, share, source in zip(demand.base, demand.caps, demand.max_shares, demand.sources, strict=True):
        by_epochs = share is None or (cap is not None and cap < share * length)
        if part:
            lower.append(f"{'max_epochs' if by_epochs else 'max_share'} of {source.name!r}")
    return ", ".join(lower)


def _raised(demand: Demand, option: str, drawn: Sequence[int], needed: Fraction) -> list[str]:
    """Every bound of `option` times the same, so that they allow `needed` more: tokens, or a share."""
    bounds: Sequence[Fraction | None] = getattr(demand, FIELDS[option])
    most = {i: bound for i in drawn if (bound := bounds[i]) is not None}
    allowed = sum(most.values(), Fraction(0))
    if option == "--max-epochs":
        needed += sum((demand.drawn[i] for i in drawn), Fraction(0))
        allowed = sum((bound * demand.sources[i].tokens for i, bound in most.items()), Fraction(0))
    if not allowed:
        return []
    return _set(demand, option, {i: rounded_up(bound * needed / allowed) for i, bound in most.items()})


def _lasting(demand: Demand, tokens: int) -> list[str]:
    """To have the stage last so many tokens, where that can be met."""
    stop = demand.span.first + tokens
    if tokens < 1 or stop > MAX_TOKENS or not replace(demand, span=demand.span._replace(stop=stop)).can_be_met:
        return []
    return [demand.span.lasting(tokens)]


def _set(demand: Demand, option: str, values: Mapping[int, str]) -> list[str]:
    """To have `option` say `values` by number of the source, where it may and that can be met."""
    field, most = FIELDS[option], 1 if option == "--max-share" else MOST
    changed = list(getattr(demand, field))
    for i, text in values.items():
        changed[i] = Fraction(text)
        if changed[i] > most or 0 < changed[i] < LEAST:
            return []
    other: dict[str, Any] = {field: changed}
    return [_options(demand, option, values.items())] if replace(demand, **other).can_be_met else []


def _options(demand: Demand, option: str, values: Iterable[tuple[int, str]]) -> str:
    """The option once for all sources where all have one value, else once a source."""
    by_name = {demand.sources[i].name: value for i, value in values}
    if len(by_name) == len(demand.sources) and len(set(by_name.values())) == 1:
        return f"{option} {next(iter(by_name.values()))}"
    return " ".join(f"{option} {name}={value}" for name, value in by_name.items())


def _error(demand: Demand, reason: str, *remedies: str) -> ConfigError:
    where = f"stage {demand.span.name!r}: " if demand.span.name else ""
    return ConfigError(f"{where}{reason}{': ' if remedies else ''}{', or '.join(remedies)}")
