"""Run on any number of ranks: what each layout really holds, at rest and at most in a step of one token a micro-batch.

Rank 0 writes JSON: for each layout its settings, parameters, and the bytes of each rank.
"""

import gc
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from allocated import AllocatedBytes
from numpy.typing import NDArray

from tokenmill_shards.reading.samples import Samples
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.build import initialize
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.layout.memory import units
from tokenmill_trainer.world import World, start_world


class OneToken:
    def samples(self, indices: NDArray[np.int64]) -> Samples:
        return Samples(np.stack([indices % 61, indices % 59], axis=1))


def measure(config: RunConfig, world: World) -> tuple[tuple[int, ...], int, int]:
    """Sizes of the model's units, and bytes at rest and at most in the second of two steps: the first makes moments."""
    source = GlobalBatches(OneToken(), config.batch_plan, world.rank, world.size)
    with AllocatedBytes() as allocated, initialize(config, source) as engine:
        for batch in engine.batches():
            if engine.progress.step == 1 and allocated.peak is None:
                allocated.peak = 0
            engine.backward(engine(batch))
            engine.step()
        peak, allocated.peak = allocated.peak, None
        gc.collect()
        assert peak is not None
        return tuple(units(engine.model, list(engine.model.layers))), allocated.now, peak


def layouts(num_ranks: int) -> list[dict[str, Any]]:
    """Settings of `training`: each with two micro-batches a step, and on one rank one with a single micro-batch."""
    stages = [{"zero_stage": stage} for stage in (range(4) if num_ranks > 1 else (0,))]
    shared = [{"zero_stage": stage, "shard_size": 2} for stage in (1, 3)] if num_ranks == 4 else []
    offloaded = [{"zero_stage": stage, "cpu_offload": True} for stage in (1, 3)] if num_ranks == 1 else []
    every = (*stages, *shared, *offloaded)
    accumulating = [{**layout, "precision": precision} for layout in every for precision in ("fp32", "bf16")]
    single = [{"zero_stage": 0, "precision": "bf16", "global_batch_size": 1}] if num_ranks == 1 else []
    return [*accumulating, *single]


if __name__ == "__main__":
    torch.set_num_threads(1)
    gc.freeze()  # what is imported needs no collecting
    config = RunConfig.model_validate_json(sys.argv[1])
    with start_world() as world:
        found = []
        for layout in layouts(world.size):
            settings = {"global_batch_size": 2 * world.size, **layout}
            training = config.training.model_copy(update=settings)
            measured = measure(config.model_copy(update={"training": training}), world)
            found.append((layout, world.gather(measured)))
        if world.is_main:
            Path(sys.argv[2]).write_text(json.dumps(found))
