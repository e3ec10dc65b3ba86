"""What keeps trackers away from training: each has a thread of its own, fed through a queue that has an end.

    run log ─ put, never waiting ─▶ queue ─ thread ─▶ tracker (a server, a database, files)
                 full: dropped, counted            └▶ RUN/trackers/KIND.json: its id there, and how far it has come

A tracker that fails is named once on the console, and at the end with what it did not get. Training goes on.
"""

import json
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenmill_core import storage
from tokenmill_trainer.watching.trackers.tracker import SampledText, Tracker, numbers

QUEUE_LENGTH = 10_000
"""Rows that wait for a slow tracker at most."""
SECONDS_TO_END = 30.0
"""How long the end of a run waits for what is still to be sent."""


class Place(NamedTuple):
    """Where a run stands in a tracker, as it is kept between starts."""

    id: str
    step: int = 0
    """The last step whose numbers it was told."""
    sampled_step: int = 0
    """The last step whose samples it was told."""


class _Numbers(NamedTuple):
    step: int
    values: dict[str, float]


class _Samples(NamedTuple):
    step: int
    samples: list[SampledText]


class _End(NamedTuple):
    digest: str | None


def read_place(path: Path) -> Place | None:
    """What an earlier start left in file `path`; none where there was none, or nothing that can be read."""
    try:
        return Place(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


class Sender:
    """One tracker and its thread. `path` keeps where it stands."""

    def __init__(
        self, kind: str, tracker: Tracker, path: Path, say: Callable[[str], None], queue_length: int = QUEUE_LENGTH
    ) -> None:
        self._kind, self._tracker, self._path, self._say = kind, tracker, path, say
        former = read_place(path)
        self._place = former if former is not None and former.id == tracker.id else Place(tracker.id)
        self._queue: queue.Queue[_Numbers | _Samples | _End] = queue.Queue(queue_length)
        self._num_dropped = self._num_failed = 0
        self._keep_place()
        self._thread = threading.Thread(target=self._work, name=f"tracker {kind}", daemon=True)
        self._thread.start()

    def put(self, message: _Numbers | _Samples) -> None:
        """Hand over without waiting; what finds no room is dropped."""
        try:
            self._queue.put_nowait(message)
        except queue.Full:
            self._num_dropped += 1

    def close(self, digest: str | None, deadline: float) -> None:
        """Wait until all is sent, at the latest until `deadline` (`time.monotonic`), and say what was not."""
        try:
            self._queue.put(_End(digest), timeout=max(0.0, deadline - time.monotonic()))
            self._thread.join(max(0.0, deadline - time.monotonic()))
        except queue.Full:
            pass
        waiting = self._queue.qsize() if self._thread.is_alive() else 0
        missing = self._num_dropped + self._num_failed + waiting
        if missing or self._thread.is_alive():
            self._say(f"{self._kind}: has not got all of this run; {missing} rows are missing there")

    def _work(self) -> None:
        while True:
            message = self._queue.get()
            try:
                self._tell(message)
            except Exception as error:  # whatever a foreign library raises, training goes on
                self._num_failed += 1
                if self._num_failed == 1:
                    self._say(f"{self._kind}: {type(error).__name__}: {error}; training goes on, and so do attempts")
            if isinstance(message, _End):
                return

    def _tell(self, message: _Numbers | _Samples | _End) -> None:
        if isinstance(message, _End):
            self._tracker.finish(message.digest)
        elif isinstance(message, _Numbers):
            if self._tracker.replaces_steps or message.step > self._place.step:
                self._tracker.log(message.step, message.values)
                self._place = self._place._replace(step=message.step)
        elif message.step > self._place.sampled_step:
            self._tracker.show(message.step, message.samples)
            self._place = self._place._replace(sampled_step=message.step)
        if self._queue.empty():
            self._keep_place()

    def _keep_place(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        storage.write_atomic(self._path, json.dumps(self._place._asdict()).encode("utf-8"))


class Trackers:
    """All trackers of a run. Without any, and on ranks other than 0, all of it does nothing."""

    def __init__(self, senders: Sequence[Sender] = ()) -> None:
        self._senders = senders
        self._digest: str | None = None

    def log(self, row: Mapping[str, Any]) -> None:
        """A row of `metrics.jsonl`."""
        if self._senders:
            message = _Numbers(row["step"], numbers(row))
            for sender in self._senders:
                sender.put(message)

    def show(self, step: int, samples: list[SampledText]) -> None:
        """Texts that the model wrote after a step."""
        for sender in self._senders:
            sender.put(_Samples(step, samples))

    def finished(self, digest: str) -> None:
        """The run has come to its end, and this is the digest of its manifest."""
        self._digest = digest

    def close(self) -> None:
        """Send what is left, for `SECONDS_TO_END` at most."""
        deadline = time.monotonic() + SECONDS_TO_END
        for sender in self._senders:
            sender.close(self._digest, deadline)
