"""Run under torchrun: train the tiny model on documents kept apart at each ZeRO stage, save, and write what happened.

Rank 0 writes JSON.
"""

import json
import sys
from pathlib import Path

import conftest

from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.build import initialize
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.world import start_world

config, folder = RunConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2])
with start_world() as world:
    for stage in range(4):
        training = config.training.model_copy(update={"zero_stage": stage})
        source = GlobalBatches(conftest.RowsOfDocuments(), training.global_batch_size, world.rank, world.size, 1)
        with initialize(config.model_copy(update={"training": training}), source) as engine:
            reports = []
            for batch in engine.batches():
                engine.backward(engine(batch))
                report = engine.step()
                if report is not None:
                    reports.append([report.loss, report.grad_norm])
                    if report.progress.step == 3:
                        checkpoint.save(engine, folder / f"stage-{stage}")
            everywhere = world.gather(reports)
            if world.is_main:
                (folder / f"stage-{stage}.json").write_text(json.dumps(everywhere))
