"""What one stage of training asks of each source, and how many of its tokens it gets.

fixed epochs ─▶ off the stage's length ─▶ the rest by water-filling under max_epochs and max_share ─▶ tokens each
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import NamedTuple, Self

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_shards.mixing import infeasible
from tokenmill_shards.mixing.amounts import amount_for
from tokenmill_shards.mixing.bounds import fill
from tokenmill_shards.mixing.request import Method, ShareRules
from tokenmill_shards.mixing.shares import SourceSize, base_shares


class Span(NamedTuple):
    """The tokens of training that a stage covers."""

    name: str
    """What messages call it; empty where there is one stage only."""
    first: int
    stop: int | None
    """Where it ends; none: wherever training does."""
    is_last: bool

    def lasting(self, tokens: int) -> str:
        """How to ask for a stage of so many tokens."""
        end = self.first + tokens
        return f"--tokens {end}" if self.is_last else f"begin the next stage at {end} tokens"


@dataclass(frozen=True)
class Demand:
    """A stage's rules applied to its sources: lists have an entry a source."""

    span: Span
    sources: Sequence[SourceSize]
    base: Sequence[Fraction]
    """In proportion to what, within its bounds, a source gets; 0 for those with fixed epochs."""
    epochs: Sequence[Fraction | None]
    """Fixed ones."""
    max_epochs: Sequence[Fraction | None]
    max_shares: Sequence[Fraction | None]
    drawn: Sequence[Fraction]
    """Tokens that the stages before drew."""

    @classmethod
    def of(
        cls,
        rules: ShareRules,
        span: Span,
        sources: Sequence[SourceSize],
        drawn: Sequence[Fraction],
        left_out: Sequence[str] = (),
    ) -> Self:
        """The demand of `rules`; the sources `left_out` are drawn from only where a rule names them.

        Raises:
            ConfigError: all weights are 0, a source has weight 0 and epochs, or UniMax has no cap for a source.
            InputError: a source that should be drawn from has no tokens.
        """
        names = [source.name for source in sources]
        idle = left_out if not rules.weights else ()
        epochs = [rules.epochs.get(name) if name in idle else amount_for(name, rules.epochs) for name in names]
        fixed = {name for name, e in zip(names, epochs, strict=True) if e is not None}
        demand = cls(
            span=span,
            sources=sources,
            base=base_shares(rules, sources, fixed.union(idle)),
            epochs=[None if e is None else Fraction(e) for e in epochs],
            max_epochs=[amount_for(name, rules.max_epochs) for name in names],
            max_shares=[amount_for(name, rules.max_share) for name in names],
            drawn=drawn,
        )
        demand._refuse_nonsense(rules)
        return demand

    @cached_property
    def fixed(self) -> list[Fraction]:
        """Tokens of each source by its fixed epochs; 0 where it has none."""
        return [(e or Fraction(0)) * source.tokens for e, source in zip(self.epochs, self.sources, strict=True)]

    @property
    def fixes_all(self) -> bool:
        """Whether fixed epochs alone say how long the stage is."""
        return not any(self.base)

    @property
    def needs_length(self) -> bool:
        """Whether the shares depend on the length of the stage."""
        bounded = any(cap is not None for cap, part in zip(self.max_epochs, self.base, strict=True) if part)
        return not self.fixes_all and (bounded or any(self.fixed))

    @cached_property
    def caps(self) -> list[Fraction | None]:
        """Tokens that `max_epochs` leaves of each source after the stages before."""
        return [
            None if most is None else max(most * source.tokens - drawn, Fraction(0))
            for most, source, drawn in zip(self.max_epochs, self.sources, self.drawn, strict=True)
        ]

    def length(self) -> Fraction:
        """Tokens of the stage; 1 where nothing depends on them.

        Raises:
            ConfigError: it has no end, and the shares depend on it.
        """
        if self.span.stop is not None:
            return Fraction(self.span.stop - self.span.first)
        if self.needs_length:
            raise infeasible.needs_budget(self)
        return sum(self.fixed, Fraction(0)) if self.fixes_all else Fraction(1)

    def solve(self) -> list[Fraction]:
        """Tokens that each source gives, in sum the length of the stage.

        Raises:
            ConfigError: that cannot be; it names the reason and the nearest that can.
        """
        if refusal := self._refusal():
            raise refusal()
        return [amount + own for amount, own in zip(self._rest(), self.fixed, strict=True)]

    @property
    def can_be_met(self) -> bool:
        """Whether `solve` has an answer."""
        return any((*self.base, *self.epochs)) and self._refusal() is None

    def _refusal(self) -> Callable[[], ConfigError] | None:
        """What makes the reason why it cannot be; none where it can."""
        length, spent = self.length(), sum(self.fixed, Fraction(0))
        if self.fixes_all and length != math.ceil(spent) and self.span.stop is not None:
            return partial(infeasible.stage_fixed, self, math.ceil(spent), length)
        if not self.fixes_all and spent > length:
            return partial(infeasible.too_much_fixed, self, spent, length)
        for number, tokens in enumerate(self.fixed):
            if contradiction := self._contradiction(number, tokens, length):
                return contradiction
        if not self.fixes_all and sum(self._rest(), spent) < length:
            return partial(infeasible.bounds_too_low, self, length)
        return None

    def _rest(self) -> list[Fraction]:
        """What sources without fixed epochs give of what these leave."""
        length = self.length()
        return fill(self.base, self._bounds(length), length - sum(self.fixed, Fraction(0)))

    def _bounds(self, length: Fraction) -> list[Fraction | None]:
        shares = [None if share is None else share * length for share in self.max_shares]
        both = [[bound for bound in pair if bound is not None] for pair in zip(self.caps, shares, strict=True)]
        return [min(bounds) if bounds else None for bounds in both]

    def _contradiction(self, number: int, tokens: Fraction, length: Fraction) -> Callable[[], ConfigError] | None:
        cap, share = self.caps[number], self.max_shares[number]
        if cap is not None and tokens > cap:
            return partial(infeasible.fixed_above_cap, self, number, cap)
        if share is not None and tokens > share * length:
            return partial(infeasible.fixed_above_share, self, number, share * length, tokens / length)
        return None

    def _refuse_nonsense(self, rules: ShareRules) -> None:
        for source, e in zip(self.sources, self.epochs, strict=True):
            if e and not source.tokens:
                raise InputError(f"source {source.name!r} {source.without_tokens}: leave it out, or give it 0 epochs")
            if e and rules.weights.get(source.name) == 0:
                raise ConfigError(f"source {source.name!r} has weight 0 and fixed epochs: give it one of them")
        if not any(self.base) and not any(self.epochs):
            raise ConfigError("all weights are 0: give at least one source a weight above 0")
        unbounded = any(part and cap is None for part, cap in zip(self.base, self.max_epochs, strict=True))
        if rules.method == Method.UNIMAX and unbounded:
            raise ConfigError("method unimax needs a bound for every source: give --max-epochs, such as --max-epochs 4")
