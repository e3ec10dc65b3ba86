"""Executors: they run the tasks of a phase that have no report yet, and nothing else."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Protocol

from tokenmill_core.errors import StageError, TokenmillError
from tokenmill_core.stage import Phase, Task, Work

OnDone = Callable[[Task], None]


class Executor(Protocol):
    """Runs tasks somewhere. When `run` returns, every task has its report in the work folder."""

    def run(self, phase: Phase, tasks: Sequence[Task], work: Work, on_done: OnDone) -> None:
        """Run `tasks`, and call `on_done` as each is finished. The first failure ends the run."""


def run_task(phase: Phase, task: Task, work: Work) -> None:
    """Run one task and mark it as done: what every executor calls, wherever it is."""
    work.write_report(phase.name, task.index, phase.run(task, work))


class LocalExecutor:
    """Processes on this machine. One worker runs in the calling process itself."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers

    def run(self, phase: Phase, tasks: Sequence[Task], work: Work, on_done: OnDone) -> None:
        """See `Executor.run`. A worker that is killed ends the run at once with a `StageError`."""
        if self.num_workers == 1 or len(tasks) <= 1:
            for task in tasks:
                with _naming(phase, task):
                    run_task(phase, task, work)
                on_done(task)
            return
        pool = ProcessPoolExecutor(
            max_workers=min(self.num_workers, len(tasks)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin_worker,
            initargs=(os.getpid(),),
        )
        try:
            self._run_in(pool, phase, tasks, work, on_done)
        except BaseException:
            _kill(pool)
            raise
        pool.shutdown()

    def _run_in(
        self, pool: ProcessPoolExecutor, phase: Phase, tasks: Sequence[Task], work: Work, on_done: OnDone
    ) -> None:
        # Largest first, so that the last worker does not start the longest task when the others are through.
        queue = sorted(tasks, key=lambda task: -task.weight)
        running: dict[Future[None], Task] = {pool.submit(run_task, phase, task, work): task for task in queue}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                task = running.pop(future)
                with _naming(phase, task):
                    future.result()
                on_done(task)


@contextmanager
def _naming(phase: Phase, task: Task) -> Iterator[None]:
    """Whatever a task raises becomes an error that says which task it was."""
    try:
        yield
    except BrokenProcessPool as error:
        raise StageError(
            f"a worker of phase {phase.name!r} was killed; if memory ran out, use fewer --workers. "
            "Finished tasks are kept: run the same command again to go on"
        ) from error
    except (TokenmillError, OSError):
        raise
    except Exception as error:
        raise StageError(
            f"task {task.index} of phase {phase.name!r} failed: {type(error).__name__}: {error}"
        ) from error


def _kill(pool: ProcessPoolExecutor) -> None:
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def _begin_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
