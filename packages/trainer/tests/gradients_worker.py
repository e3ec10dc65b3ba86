"""Run under torchrun: one step of 3, 61 and other numbers of counted tokens, its gradient clipped, in each layout.

python gradients_worker.py CONFIG FOLDER. FOLDER/layouts.json has the settings of each layout by name; every rank writes
FOLDER/NAME.RANK.pt: loss, norm and counted tokens as reported, and the whole gradient before and after clipping.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.tensor import DTensor

from tokenmill_shards.reading.samples import Samples
from tokenmill_trainer import Engine, RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.world import World, start_world

COUNTED = (3, 61, 0, 61, 64, 3, 61, 3)
"""Counted tokens of each sample of 64: as micro-batches of one, they are as unlike as can be."""


class Uneven:
    """Sample i counts its first `COUNTED[i % 8]` labels."""

    def samples(self, indices: NDArray[np.int64]) -> Samples:
        rows = [np.random.default_rng(int(i)).integers(0, 503, 65) for i in indices]
        counted = np.arange(64) < np.array(COUNTED)[indices % len(COUNTED)][:, None]
        return Samples(np.stack(rows), counted)


def gradient(engine: Engine) -> dict[str, Tensor]:
    """The whole of it, wherever its parts lie."""
    return {name: _whole(value.grad).cpu().clone() for name, value in engine.model.named_parameters()}


def _whole(value: Tensor | None) -> Tensor:
    assert value is not None
    return value.full_tensor() if isinstance(value, DTensor) else value


def one_step(engine: Engine) -> dict[str, Any]:
    found: dict[str, Any] = {}
    engine.optimizer.register_step_pre_hook(lambda *_: found.update(clipped=gradient(engine)))
    for batch in engine.batches():
        engine.backward(engine(batch))
        if batch.is_last:
            found["gradient"] = gradient(engine)
        report = engine.step()
    assert report is not None
    return {**found, "loss": report.loss, "norm": report.grad_norm, "tokens": report.tokens}


def layouts(config: RunConfig, folder: Path) -> Iterator[tuple[str, RunConfig]]:
    for name, settings in json.loads((folder / "layouts.json").read_text()).items():
        training = config.training.model_copy(update=settings)
        yield name, config.model_copy(update={"training": training})


def run(config: RunConfig, world: World, out: Path) -> None:
    source = GlobalBatches(Uneven(), config.batch_plan, world.rank, world.size, 0)
    with initialize(config, source) as engine:
        torch.save(one_step(engine), out)


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    with start_world() as world:
        for name, config in layouts(RunConfig.model_validate_json(sys.argv[1]), folder):
            run(config, world, folder / f"{name}.{world.rank}.pt")
