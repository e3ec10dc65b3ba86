"""Following a launch from outside: reports are progress, and an engine that stops early is an error."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenmill_core.errors import StageError
from tokenmill_core.executor.launch import Launch
from tokenmill_core.executor.task import OnDone
from tokenmill_core.stage import Phase, Task, Work

POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Ending:
    """An engine has stopped running shares."""

    message: str
    """What to say if tasks are left."""
    patience: float
    """Seconds for which files of its workers may yet appear: file systems that are shared show them late."""


def follow(
    launch: Launch,
    phase: Phase,
    tasks: Sequence[Task],
    work: Work,
    on_done: OnDone,
    ending: Callable[[], Ending | None],
) -> None:
    """Return when every task has its report; `on_done` hears of each. `ending` is asked whether the engine still runs.

    Errors: what a worker failed with; `StageError` where the engine stopped before all was done.
    """
    waiting = {task.index: task for task in tasks}
    ended: Ending | None = None
    deadline = 0.0
    while True:
        if ended is None and (ended := ending()) is not None:
            deadline = time.monotonic() + ended.patience
        for index in _reported(phase, work) & waiting.keys():
            on_done(waiting.pop(index))
        if not waiting:
            return
        launch.raise_failure()
        if ended is not None and time.monotonic() > deadline:
            raise StageError(f"{ended.message} Finished tasks are kept: run the same command again to go on")
        time.sleep(POLL_SECONDS)


def _reported(phase: Phase, work: Work) -> set[int]:
    """Tasks that have a report."""
    try:
        names = os.listdir(work.report_path(phase.name, 0).parent)
    except FileNotFoundError:
        return set()
    return {int(name.removesuffix(".json")) for name in names if name.endswith(".json") and name[0].isdigit()}
