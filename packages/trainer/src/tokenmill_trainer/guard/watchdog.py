"""A run that hangs says so: which rank is late, in which step, doing what, with which stacks; then it ends.

    main thread ─ enter(phase) ─▶ beat ◀─ looked at ─ watchdog thread ─▶ heartbeat of this rank ─▶ store
                                                        └ no new beat for hang_seconds ◀─ heartbeats of all ranks
                                                          └▶ stderr, hang-rank-N.txt, exit

Phases are the same on all ranks, so the rank that has entered fewest is the one that the others wait for.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from tokenmill_core.errors import ExitCode
from tokenmill_trainer.guard.heartbeats import Heartbeat, Heartbeats, late
from tokenmill_trainer.guard.stacks import describe_place, format_stacks, is_in_collective
from tokenmill_trainer.report import Progress

LONG_PHASES = frozenset({"validation", "sampling", "saving", "rolling back"})
LONG_FACTOR = 6
LOOKS = 20
"""Within `hang_seconds`."""
MAX_SECONDS_BETWEEN_LOOKS = 5.0
LOOKS_OF_GRACE = 3
"""For so long a rank that has reported still waits, so that others report too before its end is theirs."""


class Watchdog:
    """Within its `with` block watches the thread that made it; with 0 `seconds` it watches nothing.

    `progress` is asked at each phase how far the run is. `slow_start` grants the first step the time of a long phase.
    """

    def __init__(
        self,
        seconds: float,
        heartbeats: Heartbeats,
        report_file: Path,
        progress: Callable[[], Progress],
        *,
        slow_start: bool = False,
    ) -> None:
        self._seconds, self._heartbeats, self._report_file = seconds, heartbeats, report_file
        self._progress = progress
        self._slow_until = progress().step + 1 if slow_start else 0
        self._between_looks = min(MAX_SECONDS_BETWEEN_LOOKS, seconds / LOOKS)
        self._beat = Heartbeat(heartbeats.rank)
        self._watched = threading.get_ident()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tokenmill-watchdog", daemon=True)

    def enter(self, phase: str) -> None:
        """The watched thread begins `phase`."""
        progress = self._progress()
        self._beat = self._beat.next(phase, progress.step, progress.consumed_samples)

    def _watch(self) -> None:
        seen, stalled, last = -1, 0.0, time.monotonic()
        while not self._ended.wait(self._between_looks):
            beat, now = self._beat, time.monotonic()
            # A process that was stopped as a whole, as a laptop's is when it sleeps, does not hang.
            elapsed, last = min(now - last, 2 * self._between_looks), now
            seen, stalled = beat.count, stalled + elapsed if beat.count == seen else 0.0
            place, in_collective = describe_place(self._watched), is_in_collective(self._watched)
            beat = replace(beat, where=place, in_collective=in_collective)
            self._heartbeats.publish(beat)
            if stalled >= self._allowed(beat):
                self._report_and_end(beat, stalled)

    def _allowed(self, beat: Heartbeat) -> float:
        is_long = beat.phase in LONG_PHASES or beat.steps_done < self._slow_until
        return self._seconds * (LONG_FACTOR if is_long else 1)

    def _report_and_end(self, beat: Heartbeat, stalled: float) -> NoReturn:
        self._ended.wait(self._between_looks)  # what the others publish is as old as their last look
        text = describe_hang(beat, self._heartbeats.read(), stalled)
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
        with suppress(OSError):
            self._report_file.write_text(text, "utf-8")
        time.sleep(LOOKS_OF_GRACE * self._between_looks)
        os._exit(ExitCode.HUNG)

    def __enter__(self) -> Self:
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()


def describe_hang(own: Heartbeat, beats: list[Heartbeat], stalled: float) -> str:
    """What this rank knows of the hang: who is late, where every rank is, and its own stacks."""
    everyone = beats or [own]
    lines = [f"Error: {own} has got no further for {stalled:.0f} s; the process ends (guard.hang_seconds)"]
    suspects = late(everyone)
    lines += [f"  late is {beat}" for beat in suspects]
    if not suspects:
        lines.append("  all ranks wait inside a collective: the network between them may be broken")
    lines += [f"  {beat}" for beat in everyone if beat not in suspects and beat.rank != own.rank]
    return "\n".join([*lines, f"Stacks of rank {own.rank}:", format_stacks()])
