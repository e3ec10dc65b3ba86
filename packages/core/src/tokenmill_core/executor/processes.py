"""Processes and signals: workers deaf to Ctrl-C, signals put off, and nobody who outlives a parent."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

PARENT_CHECK_SECONDS = 0.5
"""How long a worker may outlive its parent."""


@contextmanager
def starting_processes() -> Iterator[None]:
    """Processes started in here never see Ctrl-C, and we see it at the end: half a start would complain."""
    caught: list[int] = []
    with on_signals(lambda number, frame: caught.append(number)):
        # A mask is inherited, so they are deaf from their first instruction on.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if caught:
        signal.raise_signal(caught[0])


@contextmanager
def on_signals(handler: Callable[[int, FrameType | None], Any] | signal.Handlers) -> Iterator[None]:
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


def kill_session(leader: BaseProcess) -> None:
    """Kill a process that has made itself the leader of a session, and all that it has started in it."""
    if leader.pid is None or leader.exitcode is not None:
        return
    with on_signals(signal.SIG_IGN):  # no second Ctrl-C in between
        with suppress(ProcessLookupError):  # it is no leader yet
            os.killpg(leader.pid, signal.SIGKILL)
        leader.kill()
        leader.join()


def exit_with_parent(parent: int, stop: Path | None = None) -> None:
    """End this process soon after `parent`, the one that started it, has ended, or a file `stop` has appeared."""
    threading.Thread(target=_wait_and_exit, args=(parent, stop), daemon=True).start()


def _wait_and_exit(parent: int, stop: Path | None) -> None:
    while os.getppid() == parent and not (stop and stop.exists()):
        time.sleep(PARENT_CHECK_SECONDS)
    os._exit(1)
