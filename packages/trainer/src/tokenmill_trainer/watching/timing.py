"""Where the time of a step goes.

    ─ data ─┤ forward ├ backward ┤ data ┤ forward ├ backward ┤ optimizer ┤ validation ┤ other ┤
    ├──────────────────────────── a lap: from one row of the metrics to the next ─────────────┤

Time belongs to one phase at any moment, so that phases sum to the whole. On a GPU the marks between them are events in
its stream: a phase is as long as the device works for it, or waits for it, and nobody waits for the device.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from itertools import pairwise
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")
MARKS_KEPT = 256
"""More are summed up, so that a clock that nobody reads does not grow."""


class Phase(StrEnum):
    """What time is spent on."""

    DATA = "data"
    """Waiting for samples, agreeing on them with the other ranks, and bringing them to the device."""
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    """The gradient's norm, the sums over ranks, clipping and the update."""
    VALIDATION = "validation"
    CHECKPOINT = "checkpoint"
    OTHER = "other"
    """All else: metrics, logs, the console, agreeing on whether to stop."""


class Timeline(Protocol):
    """What marks lie on: the host's time, or a device's."""

    def mark(self) -> Any:
        """The moment that is now."""
        ...

    def is_reached(self, mark: Any) -> bool:
        """Whether `mark` is past."""
        ...

    def seconds(self, begin: Any, end: Any) -> float:
        """Between two marks that are reached."""
        ...


class HostTimeline:
    """The time of the host, by `now`, in seconds."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.mark = now

    def is_reached(self, mark: float) -> bool:
        """Always."""
        return True

    def seconds(self, begin: float, end: float) -> float:
        """Their difference."""
        return end - begin


class DeviceTimeline:
    """The time of the current CUDA stream: a mark is reached when the work queued before it is done."""

    def mark(self) -> torch.cuda.Event:
        """An event in the stream."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def is_reached(self, mark: torch.cuda.Event) -> bool:
        """Without waiting."""
        return bool(mark.query())  # type: ignore[no-untyped-call]

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """As the device measured them."""
        return float(begin.elapsed_time(end)) / 1000


class StepClock:
    """Sums the time that phases take. It begins in phase `other`."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._phase = Phase.OTHER
        self._marks: list[tuple[Any, Phase]] = [(timeline.mark(), self._phase)]
        """Moments, and the phase that begins with each."""
        self._sums = dict.fromkeys(Phase, 0.0)

    @classmethod
    def of(cls, device: torch.device) -> Self:
        """The clock of what runs on `device`."""
        return cls(DeviceTimeline() if device.type == "cuda" else HostTimeline())

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """The time of a `with` block is that of `phase`, but for what blocks within it take for theirs."""
        former = self._phase
        self._enter(phase)
        try:
            yield
        finally:
            self._enter(former)

    def each(self, phase: Phase, items: Iterable[T]) -> Iterator[T]:
        """`items`, where waiting for each is time of `phase`."""
        iterator = iter(items)
        while True:
            with self.during(phase):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def lap(self) -> dict[Phase, float]:
        """Seconds of each phase since the last lap; the next one begins.

        What a device is still at work on counts for the next lap, which is as a rule the optimizer's update.
        """
        self._enter(self._phase)
        self._sum_up()
        sums, self._sums = self._sums, dict.fromkeys(Phase, 0.0)
        return sums

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._marks.append((self._timeline.mark(), phase))
        if len(self._marks) > MARKS_KEPT:
            self._sum_up()

    def _sum_up(self) -> None:
        last = len(self._marks) - 1
        while last and not self._timeline.is_reached(self._marks[last][0]):
            last -= 1
        for (begin, phase), (end, _) in pairwise(self._marks[: last + 1]):
            self._sums[phase] += self._timeline.seconds(begin, end)
        del self._marks[:last]


class HasClock(Protocol):
    """Whose methods can be `timed`."""

    clock: StepClock


Owner = TypeVar("Owner", bound=HasClock)


def timed(phase: Phase) -> Callable[[Callable[Concatenate[Owner, P], T]], Callable[Concatenate[Owner, P], T]]:
    """A method whose time is that of `phase`, by its object's `clock`."""

    def decorate(method: Callable[Concatenate[Owner, P], T]) -> Callable[Concatenate[Owner, P], T]:
        @wraps(method)
        def run(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> T:
            with self.clock.during(phase):
                return method(self, *args, **kwargs)

        return run

    return decorate
