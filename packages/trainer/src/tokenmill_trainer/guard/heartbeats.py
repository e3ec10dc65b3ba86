"""Where each rank is, told through the store that the ranks met at: it answers while collectives do not."""

import json
from dataclasses import asdict, dataclass, replace
from typing import Self

from torch.distributed.distributed_c10d import Store

STEP_PHASES = frozenset({"data", "agreeing on the data", "forward", "backward", "step"})
"""What belongs to the step after the last finished one; other phases come behind a step."""


@dataclass(frozen=True)
class Heartbeat:
    """How far a rank has come."""

    rank: int
    count: int = 0
    """Phases entered: all ranks go through the same ones."""
    phase: str = "starting"
    steps_done: int = 0
    first_sample: int = 0
    """Of the batch that comes next."""
    where: str = ""
    """The function its main thread is in, with file and line."""
    in_collective: bool = False
    """Whether it is inside torch.distributed, where one waits for others."""

    def next(self, phase: str, steps_done: int, first_sample: int) -> Self:
        """The beat on entering `phase`."""
        return replace(self, count=self.count + 1, phase=phase, steps_done=steps_done, first_sample=first_sample)

    def __str__(self) -> str:
        step = f"in step {self.steps_done + 1}" if self.phase in STEP_PHASES else f"after step {self.steps_done}"
        where = f", in {self.where}" if self.where else ""
        return f"rank {self.rank}: {step}, {self.phase}, samples from {self.first_sample:,}{where}"


class Heartbeats:
    """The beats of all ranks."""

    def __init__(self, store: Store, rank: int, world_size: int) -> None:
        self.rank, self._world_size = rank, world_size
        self._store = store

    def publish(self, beat: Heartbeat) -> None:
        """Let the others know; whether they can be reached does not matter."""
        try:
            self._store.set(_key(beat.rank), json.dumps(asdict(beat)))
        except RuntimeError:
            return

    def read(self) -> list[Heartbeat]:
        """The last beat of each rank that has sent one, as far as they can be had."""
        try:
            ranks = [rank for rank in range(self._world_size) if self._store.check([_key(rank)])]
            return [Heartbeat(**json.loads(self._store.get(_key(rank)))) for rank in ranks]
        except RuntimeError:
            return []


def late(beats: list[Heartbeat]) -> list[Heartbeat]:
    """Those that the others wait for: the ones that have come least far, or are in no collective where all are as far.

    None where all wait inside a collective for each other.
    """
    least = min((beat.count for beat in beats), default=0)
    behind = [beat for beat in beats if beat.count == least]
    return behind if len(behind) < len(beats) else [beat for beat in beats if not beat.in_collective]


def _key(rank: int) -> str:
    return f"heartbeat-{rank}"
