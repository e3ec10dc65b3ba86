"""What an executor is, and what it does for each task, wherever that is."""

from collections.abc import Callable, Sequence
from typing import Protocol

from tokenmill_core.errors import StageError, TokenmillError
from tokenmill_core.stage import Phase, Task, Work

OnDone = Callable[[Task], None]


class Executor(Protocol):
    """Runs tasks somewhere. When `run` returns, every task has its report in the work folder."""

    def run(self, phase: Phase, tasks: Sequence[Task], work: Work, on_done: OnDone) -> None:
        """Run `tasks`, and call `on_done` as each is finished. The first failure ends the run."""

    def close(self) -> None:
        """Let go of what is kept from one phase to the next. It can run again."""


def run_task(phase: Phase, task: Task, work: Work) -> None:
    """Run one task and mark it as done: what every executor calls, wherever it is.

    Errors are of classes that can travel between processes, and say which task it was where their message does not.
    """
    try:
        work.write_report(phase.name, task.index, phase.run(task, work))
    except TokenmillError:
        raise
    except OSError as error:
        if error.errno is None:
            raise StageError(f"task {task.index} of phase {phase.name!r} failed: {error}") from error
        raise OSError(error.errno, error.strerror, error.filename) from error
    except Exception as error:
        raise StageError(
            f"task {task.index} of phase {phase.name!r} failed: {type(error).__name__}: {error}"
        ) from error


def killed_error(phase: str) -> StageError:
    """What a run ends with when one of its workers was killed."""
    return StageError(
        f"a worker of phase {phase!r} was killed; if memory ran out, use fewer --workers. "
        "Finished tasks are kept: run the same command again to go on"
    )
