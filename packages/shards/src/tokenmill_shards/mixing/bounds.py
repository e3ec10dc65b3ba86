"""Water-filling: shares in proportion, but none above its bound, and what is above it goes to the others.

    amount_i = min(bound_i, level · base_i),   one level for all, such that the amounts sum to the total

Taking the sources by bound over base, the tightest first, each either stays below the level of what is left, or
everything behind it gets that level: exact in one pass. With equal bases this is the loop of UniMax.
"""

from collections.abc import Sequence
from fractions import Fraction

Bounds = Sequence[Fraction | None]
"""One a source; none: unbounded."""


def fill(base: Sequence[Fraction], bounds: Bounds, total: Fraction) -> list[Fraction]:
    """`total` shared out in proportion to `base`, with no amount above its bound.

    The amounts sum to less where all bounds together do. A base of 0 gets nothing.
    """
    amounts = [Fraction(0)] * len(base)
    left, weight = total, sum(base, Fraction(0))
    for i in _tightest_first(base, bounds):
        fair, bound = left * base[i] / weight, bounds[i]
        amounts[i] = fair if bound is None else min(fair, bound)
        left, weight = left - amounts[i], weight - base[i]
    return amounts


def largest_total(fixed: Fraction, caps: Bounds, shares: Sequence[Fraction], start: Fraction) -> Fraction:
    """The largest C up to `start` that can be met: C ≤ fixed + Σ min(shares_i · C, caps_i).

    The right side is concave in C, so Newton's steps from above meet the largest such C exactly.
    """
    total = start
    while True:
        capped = [cap for cap, share in zip(caps, shares, strict=True) if cap is not None and cap < share * total]
        slope = sum(
            (share for cap, share in zip(caps, shares, strict=True) if cap is None or cap >= share * total), Fraction(0)
        )
        constant = fixed + sum(capped, Fraction(0))
        if constant + slope * total >= total:
            return total
        total = constant / (1 - slope)


def _tightest_first(base: Sequence[Fraction], bounds: Bounds) -> list[int]:
    def tightness(i: int) -> tuple[bool, Fraction]:
        bound = bounds[i]
        return (True, Fraction(0)) if bound is None else (False, bound / base[i])

    return sorted((i for i, part in enumerate(base) if part), key=tightness)
