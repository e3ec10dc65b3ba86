"""Shares before bounds, from the sizes of sources; and any shares as integers that sum to one denominator.

Source i has size q_i, and the share p_i = q_i^(1/T) / Σ q_j^(1/T). Decimal arithmetic gives the same digits on every
machine, which the platform's `pow` need not; what comes after is exact.
"""

import math
from collections.abc import Container, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import NamedTuple

from tokenmill_core.errors import InputError
from tokenmill_shards.mixing.request import Method, ShareRules

DENOMINATOR = 1 << 40
"""Shares are multiples of 2⁻⁴⁰: 9e-13."""
_CONTEXT = Context(prec=60)
_LEAST = Decimal("1e-100")
"""What a size above 0 counts at least, beside the largest: far less than can be drawn."""


class SourceSize(NamedTuple):
    """How much there is to draw from."""

    name: str
    tokens: int
    """An epoch of training: what is held out is no part of it."""
    documents: int
    bytes: int
    without_tokens: str = "has no documents"
    """What a refusal says of it where it has no tokens."""


def base_shares(rules: ShareRules, sources: Sequence[SourceSize], excluded: Container[str]) -> list[Fraction]:
    """p_i of each source but the `excluded` ones, up to a common factor: what it gets where nothing binds.

    Raises:
        InputError: a source that should be drawn from has no tokens.
    """
    sizes = [Decimal(0) if source.name in excluded else _size(rules, source) for source in sources]
    for source, size in zip(sources, sizes, strict=True):
        if not source.tokens and (size or not rules.weights) and source.name not in excluded:
            raise InputError(f"source {source.name!r} {source.without_tokens}: leave it out, or give it weight 0")
    return raised(sizes, rules.temperature)


def raised(sizes: Sequence[Decimal], temperature: float) -> list[Fraction]:
    """size^(1/T) of each, relative to the largest. A size of 0 stays 0, any other stays above."""
    power = _CONTEXT.divide(Decimal(1), Decimal(repr(temperature)))
    # Relative to the largest, so that no power passes what a decimal holds: a vanishing one is 0.
    relative = [_CONTEXT.divide(size, max(sizes)) if size else size for size in sizes]
    return [
        Fraction(max(_CONTEXT.power(ratio, power), _LEAST)) if size else Fraction(0)
        for ratio, size in zip(relative, sizes, strict=True)
    ]


def integer_weights(
    amounts: Sequence[Fraction], sizes: Sequence[Decimal | int], denominator: int = DENOMINATOR
) -> list[int]:
    """`amounts` in proportion, as integers that sum to `denominator`, by largest remainder.

    An amount of 0 gets 0, any other at least 1. Ties in the remainders go to the larger of `sizes`, then to the first.
    """
    total = sum(amounts, Fraction(0))
    exact = [amount * denominator / total for amount in amounts]
    weights = [max(math.floor(value), 1 if value else 0) for value in exact]
    by_size = sorted(range(len(sizes)), key=lambda i: sizes[i], reverse=True)
    by_remainder = sorted(by_size, key=lambda i: weights[i] - exact[i])
    missing = denominator - sum(weights)
    for i in [i for i in by_remainder if weights[i]][: max(missing, 0)]:
        weights[i] += 1
    for _ in range(-missing):
        # Shares raised to 1 come off the largest ones: of equal weights the smaller size, so that none overtakes.
        weights[min(range(len(weights)), key=lambda i: (-weights[i], sizes[i]))] -= 1
    return weights


def _size(rules: ShareRules, source: SourceSize) -> Decimal:
    if rules.method != Method.TEMPERATURE:
        return Decimal(1)
    if rules.weights:
        return rules.weights.get(source.name, Decimal(0))
    size: int = getattr(source, rules.unit)
    return Decimal(size)
