"""Time by phase, on a clock that the test turns."""

from collections.abc import Callable, Iterator
from contextlib import suppress

from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.watching.timing import MARKS_KEPT, HostTimeline, Phase, StepClock


class Ticks:
    """Stands still, but for what a test adds."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


class Device:
    """A timeline whose work is done up to the moment `done`."""

    def __init__(self, ticks: Ticks) -> None:
        self.mark = ticks
        self.done = 0.0

    def is_reached(self, mark: float) -> bool:
        return mark <= self.done

    def seconds(self, begin: float, end: float) -> float:
        assert end <= self.done, "what is not done is not measured"
        return end - begin


def test_each_moment_is_of_one_phase() -> None:
    ticks = Ticks()
    clock = StepClock(HostTimeline(ticks))
    ticks.time = 1
    with clock.during(Phase.FORWARD):
        ticks.time = 3
        with clock.during(Phase.DATA):
            ticks.time = 7
        ticks.time = 15
    ticks.time = 31
    assert clock.lap() == dict.fromkeys(Phase, 0) | {Phase.OTHER: 17, Phase.FORWARD: 10, Phase.DATA: 4}
    ticks.time = 32
    assert sum(clock.lap().values()) == 1


def test_an_error_ends_its_phase() -> None:
    ticks = Ticks()
    clock = StepClock(HostTimeline(ticks))
    with suppress(KeyError), clock.during(Phase.BACKWARD):
        ticks.time = 2
        raise KeyError
    ticks.time = 3
    assert clock.lap()[Phase.OTHER] == 1


def test_the_wait_for_each_item_is_counted_and_the_work_on_it_is_not() -> None:
    ticks = Ticks()
    clock = StepClock(HostTimeline(ticks))

    def items() -> Iterator[int]:
        for item in range(3):
            ticks.time += 2
            yield item
        ticks.time += 2

    for _ in clock.each(Phase.DATA, items()):
        ticks.time += 5
    assert clock.lap() == dict.fromkeys(Phase, 0) | {Phase.DATA: 8, Phase.OTHER: 15}


def test_what_a_device_still_works_on_counts_for_the_next_lap() -> None:
    ticks = Ticks()
    device = Device(ticks)
    clock = StepClock(device)
    with clock.during(Phase.FORWARD):
        ticks.time = 2
    with clock.during(Phase.OPTIMIZER):
        ticks.time = 5
    device.done = 4
    assert clock.lap() == dict.fromkeys(Phase, 0) | {Phase.FORWARD: 2}
    ticks.time = device.done = 6
    assert clock.lap() == dict.fromkeys(Phase, 0) | {Phase.OPTIMIZER: 3, Phase.OTHER: 1}


def test_a_clock_that_nobody_reads_does_not_grow() -> None:
    ticks = Ticks()
    clock = StepClock(HostTimeline(ticks))
    for _ in range(10 * MARKS_KEPT):
        with clock.during(Phase.FORWARD):
            ticks.time += 1
    assert len(clock._marks) <= MARKS_KEPT
    assert clock.lap()[Phase.FORWARD] == 10 * MARKS_KEPT


def test_the_engine_times_its_parts(make_config: Callable[..., RunConfig], source: GlobalBatches) -> None:
    ticks = Ticks()
    with initialize(make_config(training={"micro_batch_size": 4, "steps": 1}), source) as engine:
        engine.clock = StepClock(HostTimeline(ticks))
        engine.model.register_forward_hook(lambda *_: setattr(ticks, "time", ticks.time + 1))
        for batch in engine.batches():
            loss = engine(batch)
            loss.register_hook(lambda gradient: setattr(ticks, "time", ticks.time + 10))  # type: ignore[no-untyped-call]
            engine.backward(loss)
            engine.optimizer.register_step_pre_hook(lambda *_: setattr(ticks, "time", ticks.time + 100))
            engine.step()
        found = engine.clock.lap()
    expected = {Phase.FORWARD: 2, Phase.BACKWARD: 20, Phase.OPTIMIZER: 200}
    assert found == dict.fromkeys(Phase, 0) | expected, "two micro-batches, and a hook of each at the one step"
