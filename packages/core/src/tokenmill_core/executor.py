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
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, Protocol

from tokenmill_core.errors import StageError, TokenmillError
from tokenmill_core.stage import Phase, Task, Work

OnDone = Callable[[Task], None]


class Executor(Protocol):
    """Runs tasks somewhere. When `run` returns, every task has its report in the work folder."""

    def run(self, phase: Phase, tasks: Sequence[Task], work: Work, on_done: OnDone) -> None:
        """Run `tasks`, and call `on_done` as each is finished. The first failure ends the run."""


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


class LocalExecutor:
    """Processes on this machine. One worker runs in the calling process itself."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers

    def run(self, phase: Phase, tasks: Sequence[Task], work: Work, on_done: OnDone) -> None:
        """See `Executor.run`. A worker that is killed ends the run at once with a `StageError`."""
        if self.num_workers == 1 or len(tasks) <= 1:
            for task in tasks:
                run_task(phase, task, work)
                on_done(task)
            return
        others = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(
            max_workers=min(self.num_workers, len(tasks)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin_worker,
            initargs=(os.getpid(), phase, work),
        )
        try:
            _run_in(pool, tasks, on_done)
        except BrokenProcessPool as error:
            _kill(pool, others)
            raise StageError(
                f"a worker of phase {phase.name!r} was killed; if memory ran out, use fewer --workers. "
                "Finished tasks are kept: run the same command again to go on"
            ) from error
        except BaseException:
            _kill(pool, others)
            raise
        pool.shutdown()


def _run_in(pool: ProcessPoolExecutor, tasks: Sequence[Task], on_done: OnDone) -> None:
    # Largest first, so that the last worker does not start the longest task when the others are through.
    queue = sorted(tasks, key=lambda task: -task.weight)
    with _starting_workers():
        running: dict[Future[None], Task] = {pool.submit(_run_in_worker, task): task for task in queue}
    while running:
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            task = running.pop(future)
            future.result()
            on_done(task)


@contextmanager
def _starting_workers() -> Iterator[None]:
    """Workers started in here never see Ctrl-C, and we see it when all have started: half a start would complain."""
    caught: list[int] = []
    with _on_signals(lambda number, frame: caught.append(number)):
        # A mask is inherited, so they are deaf from their first instruction on.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if caught:
        signal.raise_signal(caught[0])


def _kill(pool: ProcessPoolExecutor, others: set[BaseProcess]) -> None:
    """End the pool's workers, those too that it had no time to note down, and let no second Ctrl-C in between."""
    with _on_signals(signal.SIG_IGN):
        pool.shutdown(wait=False, cancel_futures=True)
        workers = [process for process in multiprocessing.active_children() if process not in others]
        for process in workers:
            process.kill()
        for process in workers:
            process.join()


@contextmanager
def _on_signals(handler: Callable[[int, FrameType | None], Any] | signal.Handlers) -> Iterator[None]:
    """Have `handler` deal with Ctrl-C and SIGTERM. Only a main thread may say so; in others nothing is changed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


_IN_WORKER: list[tuple[Phase, Work]] = []
"""What this worker process is for. Sent once a worker: a stage's inputs can list a million files."""


def _begin_worker(parent: int, phase: Phase, work: Work) -> None:
    """Take up the phase, and do not outlive the parent."""
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()
    _IN_WORKER[:] = [(phase, work)]


def _run_in_worker(task: Task) -> None:
    phase, work = _IN_WORKER[0]
    run_task(phase, task, work)


def _exit_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
