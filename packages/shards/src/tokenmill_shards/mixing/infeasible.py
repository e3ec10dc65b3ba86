"""Requests that cannot be met: why, and the nearest that can, in numbers to type."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from tokenmill_core.errors import ConfigError
from tokenmill_shards.mixing.amounts import rounded_down, rounded_up
from tokenmill_shards.mixing.bounds import largest_total

if TYPE_CHECKING:
    from tokenmill_shards.mixing.demand import Demand


def needs_budget(demand: Demand) -> ConfigError:
    """Epochs say nothing about shares as long as nobody knows of how many tokens."""
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
        demand.span.lasting(spent),
        "leave one source without epochs",
    )


def too_much_fixed(demand: Demand, spent: Fraction, length: Fraction) -> ConfigError:
    """Fixed epochs take more than there is."""
    scaled = ((i, e * length / spent) for i, e in enumerate(demand.epochs) if e)
    return _error(
        demand,
        f"fixed epochs take {math.ceil(spent):,} tokens, but there are {math.floor(length):,}",
        demand.span.lasting(math.ceil(spent)),
        _options(demand, "--epochs", ((i, rounded_down(e)) for i, e in scaled)),
    )


def fixed_above_cap(demand: Demand, number: int, cap: Fraction) -> ConfigError:
    """One source has more fixed epochs than max_epochs leaves it."""
    name, tokens = demand.sources[number].name, demand.sources[number].tokens
    epochs, left = demand.epochs[number] or Fraction(0), rounded_down(cap / tokens)
    return _error(
        demand,
        f"source {name!r} is to have {rounded_up(epochs)} epochs, but max_epochs leaves it {left}",
        f"--epochs {name}={left}",
        f"--max-epochs {name}={rounded_up(epochs + demand.drawn[number] / tokens)}",
    )


def fixed_above_share(demand: Demand, number: int, most: Fraction, share: Fraction) -> ConfigError:
    """The fixed epochs of one source are more than max_share leaves it."""
    name, tokens = demand.sources[number].name, demand.sources[number].tokens
    return _error(
        demand,
        f"the epochs of source {name!r} come to a share of {rounded_up(share)}, above its max_share",
        f"--epochs {name}={rounded_down(most / tokens)}",
        f"--max-share {name}={rounded_up(share)}",
    )


def bounds_too_low(demand: Demand, length: Fraction) -> ConfigError:
    """Every source is bounded, and all bounds together are below the length."""
    drawn = [i for i, part in enumerate(demand.base) if part]
    spent = sum(demand.fixed, Fraction(0))
    caps, shares = [demand.caps[i] for i in drawn], [demand.max_shares[i] for i in drawn]
    most = largest_total(spent, caps, [Fraction(1) if share is None else share for share in shares], length)
    remedies = [demand.span.lasting(math.floor(most))] if most >= 1 and demand.span.stop is not None else []
    if all(share is None for share in shares):
        remedies.append(_raised_epochs(demand, drawn, length - spent))
    elif most < 1 or all(cap is None for cap in caps):
        remedies.append(_raised_shares(demand, drawn, (length - spent) / length))
    if demand.span.stop is None:
        return _error(
            demand,
            f"max_share allows {rounded_down(sum((s for s in shares if s), Fraction(0)))} in all, below 1",
            *remedies,
        )
    reason = f"max_epochs and max_share allow {math.floor(most):,} tokens, but there are {math.floor(length):,}"
    return _error(demand, reason, *remedies)


def _raised_epochs(demand: Demand, drawn: Sequence[int], needed: Fraction) -> str:
    """Every max_epochs times the same, so that together they allow `needed` more tokens."""
    before = sum((demand.drawn[i] for i in drawn), Fraction(0))
    most = {i: demand.max_epochs[i] or Fraction(0) for i in drawn}
    factor = (needed + before) / sum(epochs * demand.sources[i].tokens for i, epochs in most.items())
    return _options(demand, "--max-epochs", ((i, rounded_up(epochs * factor)) for i, epochs in most.items()))


def _raised_shares(demand: Demand, drawn: Sequence[int], needed: Fraction) -> str:
    """Every max_share times the same, so that they sum to `needed`."""
    most = {i: demand.max_shares[i] or Fraction(0) for i in drawn}
    factor = needed / sum(most.values(), Fraction(0))
    return _options(demand, "--max-share", ((i, rounded_up(share * factor)) for i, share in most.items()))


def _options(demand: Demand, option: str, values: Iterable[tuple[int, str]]) -> str:
    """The option once for all sources where all have one value, else once a source."""
    by_name = {demand.sources[i].name: value for i, value in values}
    if len(by_name) == len(demand.sources) and len(set(by_name.values())) == 1:
        return f"{option} {next(iter(by_name.values()))}"
    return " ".join(f"{option} {name}={value}" for name, value in by_name.items())


def _error(demand: Demand, reason: str, *remedies: str) -> ConfigError:
    where = f"stage {demand.span.name!r}: " if demand.span.name else ""
    return ConfigError(f"{where}{reason}: {', or '.join(remedies)}")
