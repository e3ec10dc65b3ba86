"""Run under torchrun: `guard_worker.py config out`. What goes wrong on rank 1 stands in the environment, `FAULT`.

decide      the loss of step 3 is NaN and a gradient of step 5 infinite, at ZeRO stage 0, 1 and 3; rank 0 writes JSON:
            for each stage, what each rank reports
hook        a forward hook sleeps for ever in step 3
data        reading sleeps for ever in step 3
die         the process is killed in step 3
end         its data ends after 4 steps, that of rank 0 after 5, at ZeRO stage 0 and 3; rank 0 writes JSON: for each
            stage, steps done and what is said, on each rank
"""

import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import conftest
import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed.tensor import DTensor

from tokenmill_core.errors import InputError
from tokenmill_shards.reading.samples import Samples
from tokenmill_trainer.batches.data import GlobalBatches, RankSamples
from tokenmill_trainer.build import initialize
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.engine import Engine
from tokenmill_trainer.guard.heartbeats import Heartbeats
from tokenmill_trainer.guard.plain_words import plain_words
from tokenmill_trainer.guard.watchdog import Watchdog
from tokenmill_trainer.world import World, start_world


def decide(config: RunConfig, world: World, path: Path) -> None:
    results = []
    for stage in (0, 1, 3):
        training = config.training.model_copy(update={"zero_stage": stage})
        source = GlobalBatches(conftest.RandomSamples(), config.batch_plan, world.rank, world.size)
        with initialize(config.model_copy(update={"training": training}), source) as engine:
            results.append(world.gather(reports_of(engine)))
    if world.is_main:
        path.write_text(json.dumps(results))


def reports_of(engine: Engine) -> list[list[Any]]:
    """(skipped, loss, norm, what the guard says) of each step, and the sum of the weights."""
    reports: list[list[Any]] = []
    for batch in engine.batches():
        step, loss = engine.progress.step + 1, engine(batch)
        engine.backward(loss * math.nan if (step, engine.world.rank) == (3, 1) else loss)
        if (step, engine.world.rank) == (5, 1):
            gradient = engine.model.norm.weight.grad
            (gradient.to_local() if isinstance(gradient, DTensor) else gradient)[0] = math.inf
        report = engine.step()
        if report is not None:
            reports.append([report.skipped, str(report.loss), str(report.grad_norm), str(report.anomaly)])
    sums = [weight.double().abs().sum() for weight in engine.model.parameters()]
    return [*reports, [float(total.full_tensor() if isinstance(total, DTensor) else total) for total in sums]]


def sleeps_for_ever(*_: Any) -> None:
    while True:
        time.sleep(3600)


class StuckSamples(conftest.RandomSamples):
    """Sample 20 never comes."""

    def samples(self, indices: NDArray[np.int64]) -> Samples:
        if 20 in indices:
            sleeps_for_ever()
        return super().samples(indices)


def break_down(config: RunConfig, world: World, out: Path, fault: str) -> None:
    reader = StuckSamples() if fault == "data" else conftest.RandomSamples()
    source = GlobalBatches(reader, config.batch_plan, world.rank, world.size)
    with initialize(config, source) as engine, plain_words(engine.world):
        beats = Heartbeats(world.open_store(), world.rank, world.size)
        file = out / f"hang-rank-{world.rank}.txt"
        with Watchdog(config.guard.hang_seconds, beats, file, lambda: engine.progress) as watchdog:
            engine.on_phase = watchdog.enter
            for batch in engine.batches():
                if (engine.progress.step, world.rank) == (2, 1):
                    if fault == "hook":
                        engine.model.layers[0].register_forward_hook(sleeps_for_ever)
                    if fault == "die":
                        os.kill(os.getpid(), signal.SIGKILL)
                engine.backward(engine(batch))
                engine.step()


@dataclass(frozen=True)
class Ending:
    """A source that ends after `num_steps`."""

    source: GlobalBatches
    num_steps: int

    def iterate(self, consumed_samples: int, num_steps: int) -> Iterator[RankSamples]:
        return islice(self.source.iterate(consumed_samples, num_steps), self.num_steps)


def run_out(config: RunConfig, world: World, path: Path) -> None:
    results = []
    for stage in (0, 3):
        training = config.training.model_copy(update={"zero_stage": stage})
        source = GlobalBatches(conftest.RandomSamples(), config.batch_plan, world.rank, world.size)
        ending = Ending(source, 5 - world.rank)
        with initialize(config.model_copy(update={"training": training}), ending) as engine:
            said = ""
            try:
                for batch in engine.batches():
                    engine.backward(engine(batch))
                    engine.step()
            except InputError as error:
                said = str(error)
            results.append(world.gather([engine.progress.step, said]))
    if world.is_main:
        path.write_text(json.dumps(results))


config, out, fault = RunConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]), os.environ["FAULT"]
torch.set_num_threads(1)
with start_world() as world:
    if fault == "decide":
        decide(config, world, out)
    elif fault == "end":
        run_out(config, world, out)
    else:
        break_down(config, world, out, fault)
