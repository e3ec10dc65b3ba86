"""A window of steps seen by `torch.profiler`: what every rank computed, when, and for how long.

    steps FIRST to LAST ─▶ RUN/profile/rank-N-steps-FIRST-LAST.pt.trace.json.gz    for ui.perfetto.dev, TensorBoard
                         └▶ RUN/profile/rank-N-steps-FIRST-LAST.txt                the operations that took longest

The profiler exists in the window and one step before it, in which it warms up; other steps do not know of it.
"""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import torch
from pydantic import AfterValidator
from torch.profiler import ProfilerAction, ProfilerActivity, profile

NUM_OPERATIONS = 15
"""Rows of the table."""


def parse_window(text: str) -> tuple[int, int]:
    """The first and last step of `FIRST:LAST`, 1 being the run's first, or `ValueError`."""
    first, _, last = text.partition(":")
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise ValueError(f"{text!r} is no window of steps; say FIRST:LAST, such as 10:15")
    return int(first), int(last)


def _window(text: str) -> str:
    parse_window(text)
    return text


StepWindow = Annotated[str, AfterValidator(_window)]


class ProfileWindow:
    """Profiles this rank in steps `window`, `step` being told after each. Used in a `with` block around all steps.

    `say` is told of the files, and of one that could not be written: that does not end the run.
    """

    def __init__(
        self, window: str | None, folder: Path, *, rank: int, steps_done: int, say: Callable[[str], None]
    ) -> None:
        self._first, self._last = parse_window(window) if window else (0, 0)
        self._folder, self._rank, self._say = folder, rank, say
        self._done = steps_done
        self._profiler: profile | None = None
        self._recorded_from = 0

    def step(self, steps_done: int) -> None:
        """So many steps of the run are done; the next one is about to begin."""
        self._done = steps_done
        if self._profiler is None:
            self._start()
        elif steps_done >= self._last:
            self._stop()
        else:
            self._profiler.step()

    def _start(self) -> None:
        """If the next step is the window's first, or the one before it to warm up in; after a resume maybe inside."""
        upcoming = self._done + 1
        if not self._first or not self._first - 1 <= upcoming <= self._last:
            return
        warmup = max(0, self._first - upcoming)
        devices = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
        self._profiler = profile(
            activities=devices,
            # It records until it is stopped, so that a run that ends inside the window has its trace too.
            schedule=lambda step: ProfilerAction.WARMUP if step < warmup else ProfilerAction.RECORD,
            record_shapes=True,
            acc_events=True,
        )
        self._profiler.start()
        self._recorded_from = upcoming + warmup

    def _stop(self) -> None:
        """Take what was recorded and leave."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        profiler.stop()
        if self._done < self._recorded_from:
            return
        name = f"rank-{self._rank}-steps-{self._recorded_from}-{self._done}"
        try:
            self._write(profiler, name)
        except (OSError, RuntimeError) as error:
            self._say(f"{self._folder / name}: could not be written: {error}; training goes on")

    def _write(self, profiler: profile, name: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        trace = self._folder / f"{name}.pt.trace.json.gz"
        profiler.export_chrome_trace(str(trace))
        order = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        table = profiler.key_averages().table(sort_by=order, row_limit=NUM_OPERATIONS, max_name_column_width=40)
        (self._folder / f"{name}.txt").write_text(table, "utf-8")
        self._say(f"{table}\nprofile: {trace}")

    def __enter__(self) -> Self:
        if self._first and self._done >= self._last:
            self._say(f"no profile: step {self._last} is done already")
        self.step(self._done)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        if self._first > self._done:
            self._say(f"no profile: this start of the run ended before step {self._first}")
