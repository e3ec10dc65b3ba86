"""Progress on standard error: a bar on a terminal, a line now and then elsewhere. Results go to standard output."""

import sys
import threading
import time
from types import TracebackType
from typing import ClassVar, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 10.0


class ProgressBar:
    """How far one piece of work has come, in units of its own such as bytes.

    One inside another, in the same process, shows below it.
    """

    _shown: ClassVar[Progress | None] = None
    """The bars on the terminal, which can be drawn but once."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total, self.done = label, max(total, 1), 0
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._started = time.monotonic()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar = ProgressBar._shown or self._draw()
            self._task = self._bar.add_task(self.label, total=self.total)
        else:
            threading.Thread(target=self._write_lines, daemon=True).start()
        return self

    def _draw(self) -> Progress:
        bar = ProgressBar._shown = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        bar.start()
        return bar

    def advance(self, amount: int = 1) -> None:
        """Say that `amount` more is done."""
        self.done += amount
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, amount)

    def _write_lines(self) -> None:
        while not self._over.wait(SECONDS_BETWEEN_LINES):
            seconds = time.monotonic() - self._started
            sys.stderr.write(f"{self.label}: {100 * self.done / self.total:.0f} % after {seconds:.0f} s\n")
            sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._bar is None or self._task is None:
            return
        self._bar.remove_task(self._task)
        if not self._bar.tasks:
            self._bar.stop()
            ProgressBar._shown = None
