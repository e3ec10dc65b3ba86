"""Each step's samples as all ranks agree on them: none goes on alone, where another would wait for it for ever.

A rank's data may break off for reasons of its own, a shard that vanished or a full cache. It says so in the sum that
every step begins with anyway, and its error is then raised on all ranks.
"""

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from tokenmill_core.errors import InputError, TokenmillError
from tokenmill_trainer.batches.batch_plan import BatchPlan
from tokenmill_trainer.batches.data import RankSamples
from tokenmill_trainer.loss import IGNORED
from tokenmill_trainer.world import World


class AgreedStep(NamedTuple):
    """This rank's samples of a step, and what is known of the others'."""

    samples: RankSamples
    global_tokens: int
    """Counted tokens of the whole global batch."""


def agreed_steps(
    world: World,
    steps: Iterator[RankSamples],
    num_steps: int,
    plan: BatchPlan,
    on_phase: Callable[[str], None] = lambda phase: None,
) -> Generator[AgreedStep]:
    """`num_steps` of `steps`, of the global batch sizes of `plan`; `on_phase` is told of each wait. Collective.

    Errors: whatever reading the data raises on a rank, and `InputError` where a rank has fewer steps or other than its
    share of a global batch: on every rank.
    """
    for number in range(num_steps):
        on_phase("data")
        samples, problem = _next(steps, number, num_steps)
        on_phase("agreeing on the data")
        counted = 0 if samples is None else int((samples.labels != IGNORED).sum())
        if samples is not None:
            problem = _wrong_share(samples, plan.size_at(samples.first_sample), world)
        total, failed = world.sum([counted, problem is not None])
        if failed:
            world.on_each(lambda problem=problem: _raise(problem))  # type: ignore[misc]
        assert samples is not None
        yield AgreedStep(samples, int(total))


def _next(
    steps: Iterator[RankSamples], done: int, wanted: int
) -> tuple[RankSamples | None, TokenmillError | OSError | None]:
    try:
        samples = next(steps, None)
    except (TokenmillError, OSError) as error:
        return None, error
    if samples is None:
        return None, InputError(
            f"the data ended after {done} of the {wanted} steps that are left; lower training.steps"
        )
    return samples, None


def _wrong_share(samples: RankSamples, global_batch_size: int, world: World) -> InputError | None:
    have = len(samples.inputs)
    if have * world.size == global_batch_size:
        return None
    return InputError(
        f"rank {world.rank} got {have} samples of the step that begins with sample {samples.first_sample}, but its "
        f"share of a global batch of {global_batch_size} on {world.size} ranks is {global_batch_size // world.size}: "
        "make the source give that many"
    )


def _raise(problem: Exception | None) -> None:
    if problem is not None:
        raise problem
