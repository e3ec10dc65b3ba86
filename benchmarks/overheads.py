"""What a run costs besides its training steps, all together: `make bench-overheads`; TEXT="FILE..." adds text.

    whole    `pretrain run`: samples of a mixture read from shards, metrics by source, console, guard with a policy for
             spikes and for what is not finite, watchdog, checkpoints written beside training
    bare     the same model, optimizer and batches, held in memory, stepped by the engine with none of those
    control  with --control, `bare` once more: how far apart two processes are that do the very same

Each is a process of its own that takes turns of as many steps as the console has lines for; both must have the same
losses. In every other turn of `whole` a checkpoint is saved from its begin on: what these turns take more is the cost
of a save, which counts at the default interval. Prints ratios of medians and where the time went by the run's own
metrics, and keeps them in benchmarks/results/ with date and machine.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpus_text import load_texts
from overheads_contestants import STEPS
from overheads_data import make_mixture
from trainer import HERE, SHAPES, keep
from turns import ONE_THREAD, take_turns

from tokenmill_trainer.checkpoints.retention import CheckpointConfig

LENGTH, ROWS = 512, 4
INTERVAL = CheckpointConfig().interval
DROPPED = 2
"""Rounds that do not count: the second has the first save, which alone pays for fresh memory."""
AS_USERS = ["env", *(f"--unset={name}" for name in ONE_THREAD), "OMP_WAIT_POLICY=PASSIVE"]
"""All cores, and threads that wait as `pretrain` has them wait."""


def settings_of(mixture: str, shape: str, precision: str, rounds: int) -> dict[str, dict[str, Any]]:
    """The run: steps of one micro-batch, and a save every other turn."""
    return {
        "model": SHAPES[shape],
        "data": {"mixture": mixture, "sequence_length": LENGTH},
        "optimizer": {"lr": 3e-4},
        "schedule": {"warmup_steps": STEPS},
        "training": {
            "steps": STEPS * (rounds + 2),  # one turn before the first round, one that is never asked for
            "global_batch_size": ROWS,
            "micro_batch_size": ROWS,
            "precision": precision,
            "device": "cpu",
        },
        "checkpoint": {"interval": 2 * STEPS},
        "guard": {"non_finite": "skip", "spike": "skip"},
    }


def measure(folder: Path, rounds: int, names: Sequence[str]) -> dict[str, Any]:
    """All of it, of the run whose settings lie in `folder`."""
    script = str(HERE / "overheads_contestants.py")
    commands = {name: [*AS_USERS, sys.executable, script, name, str(folder)] for name in names}
    rates = take_turns(commands, rounds)
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    for losses in folder.glob("*.losses"):
        check_losses(rows, losses.read_text().split(), STEPS * (rounds + 1))
    turns = [json.loads(line) for line in (folder / "turns.jsonl").read_text().splitlines()]
    for number, turn in enumerate(turns):
        rows[number * STEPS]["time"]["other"] -= turn["pause"]
        if ("saved_after" in turn) != (number > 0 and number % 2 == 0):
            raise SystemExit(f"turn {number} of {STEPS} steps: a save took longer than a turn; make STEPS more")
    seconds = {name: [1 / rate for rate in own] for name, own in rates.items()}
    return summary(seconds, rows, turns)


def check_losses(rows: Sequence[dict[str, Any]], bare: Sequence[str], steps: int) -> None:
    """The same samples and updates give the same losses, to the bit, or they do not do the same work."""
    for row, loss in zip(rows[:steps], bare[:steps], strict=True):
        if row["loss"] != float(loss):
            raise SystemExit(f"step {row['step']}: loss {row['loss']} in the run, {loss} in the bare steps: {row}")


def summary(
    seconds: dict[str, list[float]], rows: Sequence[dict[str, Any]], turns: Sequence[dict[str, float]]
) -> dict[str, Any]:
    """`seconds` a step in each round; round r is turn r + 1, which has the rows from (r + 1) · STEPS on."""
    count = len(seconds["bare"])
    without, saving = range(DROPPED, count, 2), range(DROPPED + 1, count, 2)
    bare = statistics.median(seconds["bare"][DROPPED:])
    whole, whole_saving = (statistics.median(seconds["whole"][r] for r in part) for part in (without, saving))
    save = STEPS * (whole_saving - whole)
    snapshot = statistics.median(rows[(r + 1) * STEPS]["time"]["checkpoint"] for r in saving)
    times = [row["time"] for r in without for row in rows[(r + 1) * STEPS : (r + 2) * STEPS]]
    phases = {name: statistics.mean(time[name] for time in times) for name in times[0]}
    own = phases["data"] + phases["other"] + snapshot / INTERVAL
    return {
        "overhead": round(whole / bare - 1 + save / INTERVAL / bare, 5),
        "of it without saves": round(whole / bare - 1, 5),
        "of it saves": round(save / INTERVAL / bare, 5),
        "seconds a step": {
            **{name: spread(own[DROPPED:]) for name, own in seconds.items() if name != "whole"},
            "whole": spread([seconds["whole"][r] for r in without]),
            "whole while saving": spread([seconds["whole"][r] for r in saving]),
        },
        "whole over bare, round by round": spread([seconds["whole"][r] / seconds["bare"][r] for r in without]),
        "a save": {
            "seconds more": round(save, 3),
            "of it snapshot": round(snapshot, 4),
            "seconds until complete": round(statistics.median(turns[r + 1]["saved_after"] for r in saving), 2),
            "steps between two": INTERVAL,
        },
        "milliseconds a step by the metrics": {name: round(1000 * spent, 3) for name, spent in phases.items()},
        "overhead by the metrics": round(own / sum(phases.values()), 5),
    }


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median and quartiles."""
    low, middle, high = (round(value, 4) for value in statistics.quantiles(values, n=4, method="inclusive"))
    return {"median": middle, "quartiles": [low, high]}


def main(arguments: Sequence[str]) -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description="What a run costs besides its training steps.")
    parser.add_argument("texts", nargs="*", help="Parquet or JSON Lines with a column `text`, besides Python's source.")
    parser.add_argument("--rounds", type=int, default=22, help=f"Turns of each; the first {DROPPED} do not count.")
    parser.add_argument("--shape", default="30M", choices=SHAPES)
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--control", action="store_true", help="Let the bare steps take part twice.")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "overheads.json")
    given = parser.parse_args(arguments)
    if given.rounds < DROPPED + 4:
        parser.error(f"--rounds {given.rounds}: at least {DROPPED + 4}, so that two with a save count and two without")
    names = ("whole", "bare", "control") if given.control else ("whole", "bare")
    results = {}
    with tempfile.TemporaryDirectory() as data:
        texts, vocab_size = load_texts(given.texts), SHAPES[given.shape]["vocab_size"]
        mixture = make_mixture(Path(data), texts, vocab_size, LENGTH)
        for precision in given.precisions:
            with tempfile.TemporaryDirectory() as name:
                settings = settings_of(mixture, given.shape, precision, given.rounds)
                (Path(name) / "settings.json").write_text(json.dumps(settings))
                what = f"{given.shape}, {LENGTH} tokens, {precision}, steps of {ROWS} samples"
                results[what] = measure(Path(name), given.rounds, names)
                print(what, json.dumps(results[what], indent=2), flush=True)
    keep(given.out, {"results": results})


if __name__ == "__main__":
    main(sys.argv[1:])
