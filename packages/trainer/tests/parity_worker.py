"""Run under torchrun: train the tiny model on documents kept apart at each ZeRO stage, save, and write what happened.

Afterwards bf16 at stages 0 and 3, and stage 3 goes on where stage 0 has saved, and the other way round. Rank 0 writes
JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

import conftest
import pytest

from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.build import initialize
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.checkpoints.store import require_verified
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.world import World, start_world


def train(config: RunConfig, world: World, out: Path, start: Path | None = None, **settings: Any) -> None:
    """Write what the ranks report of each step to `out`.json, and the state after the third step to `out`."""
    if settings.get("zero_stage") == 0:
        settings["shard_size"] = None  # nothing is shared there
    training = config.training.model_copy(update=settings)
    source = GlobalBatches(conftest.RowsOfDocuments(), training.global_batch_size, world.rank, world.size, 1)
    with initialize(config.model_copy(update={"training": training}), source) as engine:
        if start is not None:
            checkpoint.restore(engine, require_verified(start, pytest.fail))
        reports = []
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
            if report is not None:
                reports.append([report.loss, report.grad_norm])
                if report.progress.step == 3:
                    checkpoint.save(engine, out)
        everywhere = world.gather(reports)
        if world.is_main:
            out.with_name(f"{out.name}.json").write_text(json.dumps(everywhere))


config, folder = RunConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2])
with start_world() as world:
    for stage in range(4):
        train(config, world, folder / f"stage-{stage}", zero_stage=stage)
    for stage in (0, 3):
        train(config, world, folder / f"bf16-stage-{stage}", zero_stage=stage, precision="bf16")
    for before, after in ((0, 3), (3, 0)):
        train(config, world, folder / f"stage-{before}-to-{after}", folder / f"stage-{before}", zero_stage=after)
