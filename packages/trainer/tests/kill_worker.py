"""`pretrain run` on two ranks, killed at many moments of its second save and resumed on one: what came of it, as JSON.

python kill_worker.py CONFIG MIXTURE OUT. Rank 0 of a fresh world of forks plays each scene.
"""

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forked_ranks import on_ranks, pretrain

from tokenmill_trainer.checkpoints import saver, vouched_files, writing

settings, mixture, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
SAVES = ("--set", "training.steps=6", "--set", "checkpoint.interval=2", "--set", "validation.interval=0")


@dataclass(frozen=True)
class Scene:
    """Who dies where: just before rank `rank` makes its `nth` call of `owner.name` in its second save."""

    name: str
    owner: Any
    function: str
    nth: int = 1
    rank: int = 0
    everyone: bool = False


SCENES = (
    Scene("rank 1 while it writes", vouched_files._Stream, "write", nth=20, rank=1),
    Scene("rank 0 before the manifest", writing, "publish"),
    Scene("all while they write", vouched_files._Stream, "write", nth=20, rank=1, everyone=True),
    Scene("all before the rename", writing, "discard", everyone=True),
    Scene("all before old ones go", writing, "prune", everyone=True),
)


def arm(scene: Scene) -> None:
    """From the second save on, calls are counted, and the fatal one strikes."""
    inner_write, inner = writing.write, getattr(scene.owner, scene.function)
    saves, calls = itertools.count(1), itertools.count(1)
    armed: list[bool] = []

    def write(*arguments: Any) -> Path:
        if next(saves) == 2:
            armed.append(True)
        return inner_write(*arguments)

    def strike(*arguments: Any, **options: Any) -> Any:
        if armed and next(calls) == scene.nth:
            (os.killpg if scene.everyone else os.kill)(os.getpgrp() if scene.everyone else os.getpid(), signal.SIGKILL)
        return inner(*arguments, **options)

    setattr(saver, "write", write)  # noqa: B010  # for mypy
    setattr(scene.owner, scene.function, strike)


def first(name: str, scene: Scene | None = None) -> Callable[[int], None]:
    def run(rank: int) -> None:
        if scene is not None and rank == scene.rank:
            arm(scene)
        run_of = ("run", "--config", settings, "--mixture", mixture, "--out", out / name)
        pretrain(out / f"{name}.{rank}.log", *run_of, *SAVES)

    return run


def play(scene: Scene) -> dict[str, Any]:
    codes = on_ranks(2, first(scene.name, scene))
    left = sorted(path.name for path in (out / scene.name / "checkpoints").iterdir())
    log = out / f"{scene.name}.resumed.log"
    resumed = on_ranks(1, lambda _: pretrain(log, "run", "--out", out / scene.name, "--resume"))
    at_last = sorted(path.name for path in (out / scene.name / "checkpoints").iterdir())
    return {"codes": codes, "left": left, "resumed": resumed, "said": log.read_text(), "at_last": at_last}


if __name__ == "__main__":
    assert on_ranks(2, first("unbroken")) == [0, 0], (out / "unbroken.0.log").read_text()
    (out / "scenes.json").write_text(json.dumps({scene.name: play(scene) for scene in SCENES}))
