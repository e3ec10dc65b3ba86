"""Checkpoints written beside training: a step is held up by the copying of the state alone.

    step N ─ capture ─▶ Snapshot ─────────────▶ thread: write, read back, rename, remove old ones
    step N+1, N+2, …     `check`: has every rank ended? then all say so, or all raise, at the same step

The thread has a process group of its own, because collectives of two threads must not meet. One save is under way at a
time; the next waits for it.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tokenmill_core.errors import TokenmillError
from tokenmill_trainer.checkpoints.capture import HostCopies, capture
from tokenmill_trainer.checkpoints.writing import write
from tokenmill_trainer.engine import Engine

PATIENCE_SECONDS = 1.0
"""Waits that are longer are told of."""


class Saver:
    """Saves the state of `engine` into `folder`; `say` gets a line for each checkpoint that is complete.

    Every method is collective. Leaving the `with` block waits for what is under way, also where the run ends by an
    error of its own: that state is from before it.
    """

    def __init__(self, engine: Engine, folder: Path, say: Callable[[str], None]) -> None:
        self._engine, self._folder, self._say = engine, folder, say
        self._under_way: Future[Path] | None = None
        self._copies: HostCopies | None = None
        if engine.config.checkpoint.asynchronous:
            self._copies = HostCopies(engine.world.device)
            self._world = engine.world.beside()

    def save(self) -> None:
        """Save the state of this moment, after what is under way.

        Errors: `NonFiniteError` where the weights are no numbers; `CheckpointError` where this save, or with
        `checkpoint.asynchronous` the one before, could not be written.
        """
        self.finish()
        if self._copies is None:
            self._tell(write(capture(self._engine), self._folder, self._engine.world))
            return
        snapshot = capture(self._engine, self._copies)
        self._under_way = _beside(partial(write, snapshot, self._folder, self._world))

    def check(self) -> None:
        """Learn whether the save under way has ended: costs a small sum over ranks while there is one.

        Errors: `CheckpointError` on every rank, at the same step, where it has failed.
        """
        if self._under_way is None:
            return
        done = self._under_way.done()
        failed = done and self._under_way.exception() is not None
        num_done, num_failed = self._engine.world.sum([float(done), float(failed)])
        if num_failed or num_done == self._engine.world.size:
            self.finish()

    def finish(self) -> None:
        """Wait until what is under way is complete. Errors: as for `check`."""
        if self._under_way is None:
            return
        if not wait([self._under_way], PATIENCE_SECONDS).done:
            self._say("waiting until the last checkpoint is written")
            wait([self._under_way])
        ended, self._under_way = self._under_way, None
        self._tell(ended.result())

    def _tell(self, saved: Path) -> None:
        self._say(f"saved {saved.name}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        elif isinstance(error, TokenmillError):  # every rank has it; after any other the ranks may have parted
            self._finish_after_error()
        if self._copies is not None and self._under_way is None:
            self._copies.close()
            self._world.leave()

    def _finish_after_error(self) -> None:
        try:
            self.finish()
        except TokenmillError as error:
            self._say(str(error))


def _beside(action: Callable[[], Path]) -> Future[Path]:
    """`action` on a thread of its own, which an interpreter that ends does not wait for."""
    future: Future[Path] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="checkpoint", daemon=True).start()
    return future
