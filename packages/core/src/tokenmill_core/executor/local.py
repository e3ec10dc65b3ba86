"""Processes on this machine."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess

from tokenmill_core.executor.processes import exit_with_parent, on_signals, starting_processes
from tokenmill_core.executor.task import OnDone, killed_error, run_task
from tokenmill_core.stage import Phase, Task, Work


class LocalExecutor:
    """Processes on this machine. One worker runs in the calling process itself.

    Workers stay for the phases to come: they have imported, and compiled, what those need.
    """

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self._pool: ProcessPoolExecutor | None = None
        self._others: set[BaseProcess] = set()
        """Child processes that are not the pool's."""
        self._num_phases = 0

    def run(self, phase: Phase, tasks: Sequence[Task], work: Work, on_done: OnDone) -> None:
        """See `Executor.run`. A worker that is killed ends the run at once with a `StageError`."""
        if phase.alone:
            self.close()
        if self.num_workers == 1 or len(tasks) <= 1:
            for task in tasks:
                run_task(phase, task, work)
                on_done(task)
            return
        pool = self._pool or self._start()
        try:
            self._run_in(pool, phase, work, tasks, on_done)
        except BrokenProcessPool as error:
            self._kill(pool)
            raise killed_error(phase.name) from error
        except BaseException:
            self._kill(pool)
            raise

    def close(self) -> None:
        """See `Executor.close`. Left to the end of Python, the pool's thread can be woken by a pipe it just closed.

        What tasks wrote is on disk, and taking down all that a worker has in memory would take it half a second.
        """
        if self._pool is not None:
            self._kill(self._pool)

    def _start(self) -> ProcessPoolExecutor:
        self._others = set(multiprocessing.active_children())
        self._pool = ProcessPoolExecutor(
            max_workers=self.num_workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=exit_with_parent,
            initargs=(os.getpid(),),
        )
        return self._pool

    def _run_in(
        self, pool: ProcessPoolExecutor, phase: Phase, work: Work, tasks: Sequence[Task], on_done: OnDone
    ) -> None:
        """Run tasks. Their phase can list a million files, so a worker is sent it once, and then knows its number."""
        self._num_phases += 1
        # Largest first, so that the last worker does not start the longest task when the others are through.
        queue = deque(sorted(tasks, key=lambda task: -task.weight))
        running: dict[Future[bool], Task] = {}

        def submit(task: Task, sent: tuple[Phase, Work] | None = None) -> None:
            running[pool.submit(_run_in_worker, self._num_phases, sent, task)] = task

        def fill_up() -> None:
            # Few at a time: a worker that does not know the phase gives back what it is handed until it is sent it.
            while queue and len(running) < 2 * self.num_workers:
                submit(queue.popleft())

        with starting_processes():
            fill_up()
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                task = running.pop(future)
                if future.result():
                    on_done(task)
                else:
                    submit(task, (phase, work))
            fill_up()

    def _kill(self, pool: ProcessPoolExecutor) -> None:
        """End the pool's workers, those too that it had no time to note down, and let no second Ctrl-C in between."""
        self._pool = None
        with on_signals(signal.SIG_IGN):
            workers = [process for process in multiprocessing.active_children() if process not in self._others]
            for process in workers:
                process.kill()
            for process in workers:
                process.join()
            # Its thread ends once the workers are dead. At exit Python would wake a thread that still runs, by a pipe
            # that the thread is just closing: a traceback after the error.
            pool.shutdown(cancel_futures=True)


_KNOWN: dict[int, tuple[Phase, Work]] = {}
"""The phase that this worker process is at, by its number."""


def _run_in_worker(number: int, sent: tuple[Phase, Work] | None, task: Task) -> bool:
    """Run a task; false where the worker has not been sent the phase yet."""
    if number not in _KNOWN:
        if sent is None:
            return False
        _KNOWN.clear()
        _KNOWN[number] = sent
    phase, work = _KNOWN[number]
    run_task(phase, task, work)
    return True
