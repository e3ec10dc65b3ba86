"""How many samples each step takes: always as many, or more as training goes on.

    training.batch_ramp = [[0, 64], ["1B", 128], ["5B", 256]]     from this many consumed tokens on, so many samples

The size of a step depends on the samples consumed before it and on nothing else, and a step takes the samples that come
next, so a ramp changes neither the order of the data nor what a resumed run needs to know.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tokenmill_shards.mixing.amounts import MAX_TOKENS, parse_tokens


def _read_tokens(value: Any) -> Any:
    return parse_tokens(value, "from") if isinstance(value, str) else value


RampTokens = Annotated[int, BeforeValidator(_read_tokens), Field(ge=0, le=MAX_TOKENS)]
"""Consumed tokens: a number or text such as `1B`."""
RampSize = Annotated[int, Field(gt=0, le=10**9)]
"""Samples a step."""


@dataclass(frozen=True)
class BatchPlan:
    """From `starts[i]` consumed samples on a step takes `sizes[i]`; the first start is 0, and they rise."""

    starts: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def constant(cls, size: int) -> "BatchPlan":
        """Every step takes `size` samples."""
        return cls((0,), (size,))

    @classmethod
    def ramp(cls, ramp: Sequence[tuple[int, int]], sequence_length: int) -> "BatchPlan":
        """The plan of a `training.batch_ramp`, whose tokens become samples of `sequence_length`, rounded up."""
        return cls(tuple(-(-tokens // sequence_length) for tokens, _ in ramp), tuple(size for _, size in ramp))

    @property
    def final_size(self) -> int:
        """Samples of a step once the ramp is over."""
        return self.sizes[-1]

    def size_at(self, consumed: int) -> int:
        """Samples of the step that begins when `consumed` samples are."""
        return self.sizes[bisect_right(self.starts, consumed) - 1]

    def after(self, consumed: int, num_steps: int) -> int:
        """Samples consumed once `num_steps` more steps are done, in time that depends on the ramp's length alone."""
        while num_steps > 0:
            index = bisect_right(self.starts, consumed)
            size, steps = self.sizes[index - 1], num_steps
            if index < len(self.starts):
                steps = min(num_steps, -(-(self.starts[index] - consumed) // size))
            consumed += steps * size
            num_steps -= steps
        return consumed

    def steps_for(self, samples: int) -> int:
        """The least number of steps that consume `samples`."""
        steps = consumed = 0
        for start, size in zip((*self.starts[1:], samples), self.sizes, strict=True):
            until = min(start, samples)
            more = max(0, -(-(until - consumed) // size))
            steps, consumed = steps + more, consumed + more * size
        return steps

    def steps_from(self, consumed: int, num_steps: int) -> Iterator[int]:
        """Where each of the next `num_steps` steps begins, in samples."""
        for _ in range(num_steps):
            yield consumed
            consumed += self.size_at(consumed)
