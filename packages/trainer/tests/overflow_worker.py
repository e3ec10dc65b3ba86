"""Run under torchrun: train in fp16 over a batch ramp, with an overflow in step 3 on rank 1 alone, at each ZeRO stage.

Rank 0 writes JSON: for each stage, what each rank reports.
"""

import json
import sys
from pathlib import Path

import conftest
import torch
from torch.distributed.tensor import DTensor

from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.build import initialize
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.engine import Engine
from tokenmill_trainer.world import start_world


def reports_of(engine: Engine) -> list[list[float]]:
    """(skipped, loss, norm, consumed samples) of each step, and the loss scale's state."""
    reports = []
    for batch in engine.batches():
        engine.backward(engine(batch))
        if batch.is_last and engine.progress.step == 2 and engine.world.rank == 1:
            gradient = engine.model.layers[0].mlp.up_proj.weight.grad
            local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
            local[0, 0] = torch.inf
        report = engine.step()
        if report is not None:
            reports.append([report.skipped, report.loss, report.grad_norm, report.progress.consumed_samples])
    assert engine.loss_scale is not None
    return [*reports, engine.loss_scale.state().tolist()]


config, path = RunConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2])
with start_world() as world:
    results = []
    for stage in range(4):
        training = config.training.model_copy(update={"zero_stage": stage})
        source = GlobalBatches(conftest.RowsOfDocuments(), config.batch_plan, world.rank, world.size, 1)
        with initialize(config.model_copy(update={"training": training}), source) as engine:
            results.append(world.gather(reports_of(engine)))
    if world.is_main:
        path.write_text(json.dumps(results))
