"""The guard of a run into a folder: the watchdog, the record of events, and the way back to a checkpoint."""

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tokenmill_trainer.engine import Engine
from tokenmill_trainer.guard.anomaly import Action, Anomaly, GuardError
from tokenmill_trainer.guard.events import EventLog
from tokenmill_trainer.guard.heartbeats import Heartbeats
from tokenmill_trainer.guard.rollback import roll_back
from tokenmill_trainer.guard.watchdog import Watchdog
from tokenmill_trainer.run_folder import RunFolder

OUTCOMES = {Action.NOTE: "noted", Action.SKIP: "left out", Action.ROLLBACK: "going back to a checkpoint"}


class RunGuard:
    """Within its `with` block a hang ends the process, and a step that ends the run is recorded."""

    def __init__(
        self, engine: Engine, run: RunFolder, say: Callable[[str], None], settle: Callable[[], None] = lambda: None
    ) -> None:
        """`settle` waits for a checkpoint that is being written, so that all ranks know which is the newest."""
        self._engine, self._run, self._say, self._settle = engine, run, say, settle
        world = engine.world
        self._events = EventLog(run.events_file if world.is_main else None, engine.reader)
        self._watchdog = Watchdog(
            engine.config.guard.hang_seconds,
            Heartbeats(world.open_store(), world.rank, world.size),
            run.path / f"hang-rank-{world.rank}.txt",
            lambda: engine.progress,
            slow_start=engine.config.training.compile,
        )
        self._resources = ExitStack()

    def respond(self, anomaly: Anomaly) -> bool:
        """Record a step, and go back to a checkpoint where that is the policy: whether it was done. Collective."""
        self._engine.on_phase("recording an event")
        self._events.found(anomaly)
        self._say(f"{anomaly}: {OUTCOMES[anomaly.action]}; its documents stand in {self._run.events_file.name}")
        if anomaly.action is not Action.ROLLBACK:
            return False
        self._engine.on_phase("rolling back")
        self._settle()
        done = roll_back(self._engine, self._run.checkpoints, anomaly, self._say)
        if done is None:
            return False
        self._events.write(done)
        return True

    def __enter__(self) -> Self:
        self._resources.enter_context(self._watchdog)
        self._engine.on_phase = self._watchdog.enter
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, GuardError) and error.anomaly is not None:
            self._events.found(error.anomaly)
        self._resources.close()
