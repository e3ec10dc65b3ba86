"""Who trains in `overheads.py`: `python overheads_contestants.py NAME FOLDER`.

    whole    pretrain run ─ "step 20/250 …" on standard error ─▶ held up there until its next turn
    bare     the same batches from memory ─▶ engine ─▶ the same losses; any other name is one more of these

All are told to do `STEPS` steps a turn, which is as often as the console has a line.
"""

import io
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from turns import serve

from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import Counts
from tokenmill_trainer.cli import main
from tokenmill_trainer.watching.metrics import LoggingConfig

STEPS = LoggingConfig().interval
"""One turn."""
NO_GUARD = {"window": 1024, "min_history": 1024}
"""Settings with which no step is looked at but for whether it is finite, within as many steps."""


class PausingConsole(io.TextIOWrapper):
    """A standard error in which the line of a step takes until the next turn begins: so the loop itself waits.

    Leaves in `turns.jsonl` for each turn how long it was waited for, and after how many seconds a save was complete.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__((folder / "console.txt").open("wb"), encoding="utf-8")
        self._turns = (folder / "turns.jsonl").open("w")
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._began, self._turn = time.perf_counter(), {"pause": 0.0}

    def write(self, text: str) -> int:
        """Write, and wait if it ends the turn."""
        written = super().write(text)
        if text.startswith("saved "):
            self._turn["saved_after"] = time.perf_counter() - self._began
        elif text.startswith("step "):
            self.flush()
            self._wait()
        return written

    def _wait(self) -> None:
        ended = time.perf_counter()
        print(json.dumps(self._turn), file=self._turns, flush=True)
        self._done.release()
        self._go.acquire()
        self._began = time.perf_counter()
        self._turn = {"pause": self._began - ended}

    def turns(self) -> Iterator[range]:
        """For another thread: lets the loop go on, one turn at a time."""
        while True:
            self._done.acquire()
            yield range(STEPS)
            self._go.release()


def whole(folder: Path, settings: dict[str, dict[str, Any]]) -> None:
    """`pretrain run` as users have it, on the main thread."""
    sys.stderr = console = PausingConsole(folder)
    threading.Thread(target=serve, args=(console.turns,), daemon=True).start()
    values = [
        f"{section}.{name}={json.dumps(value)}" for section, own in settings.items() for name, value in own.items()
    ]
    overrides = [part for value in values for part in ("--set", value)]
    mixture = settings["data"]["mixture"]
    sys.argv = ["pretrain", "run", "--mixture", mixture, "--out", str(folder / "run"), *overrides]
    main()


def bare(name: str, folder: Path, settings: dict[str, dict[str, Any]]) -> Iterator[range]:
    """Engine and batches, read beforehand; nothing is told by source, written, shown, saved or watched."""
    with (
        initialize(RunConfig.model_validate({**settings, "guard": NO_GUARD})) as engine,
        (folder / f"{name}.losses").open("w") as losses,
    ):
        batches = [replace(batch, sources=None, counts=Counts()) for batch in engine.batches()]
        for batch in batches:
            engine.backward(engine(batch))
            report = engine.step()
            assert report is not None
            print(report.loss, file=losses, flush=True)
            if report.progress.step % STEPS == 0:
                yield range(STEPS)


if __name__ == "__main__":
    who, place = sys.argv[1], Path(sys.argv[2])
    given = json.loads((place / "settings.json").read_text())
    if who == "whole":
        whole(place, given)
    else:
        serve(lambda: bare(who, place, given))
