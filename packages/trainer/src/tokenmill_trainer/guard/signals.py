"""SIGTERM and SIGINT as a wish to stop after the step, not as a death."""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self

STOPPING = (signal.SIGTERM, signal.SIGINT)
SECONDS_OF_ONE_WISH = 2.0
"""Ctrl-C reaches every process of a terminal, and torchrun sends it on to its own once more: that is one wish."""


class StopSignals:
    """Within its `with` block the first signal only sets `received`; a later Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.received: str | None = None
        """Name of the signal that came, or none."""
        self._received_at = 0.0
        self._previous: dict[signal.Signals, Any] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.received is None:
            self.received, self._received_at = signal.Signals(number).name, now
        elif number == signal.SIGINT and now - self._received_at > SECONDS_OF_ONE_WISH:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in STOPPING}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
