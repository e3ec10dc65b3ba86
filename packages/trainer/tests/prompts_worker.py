"""Run under torchrun: train at each ZeRO stage, with texts from prompts between steps. Rank 0 writes JSON."""

import json
import sys
from pathlib import Path

import conftest
import test_prompts

from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.world import start_world

config, folder = RunConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2])
with start_world() as world:
    for stage in (0, 3):
        training = config.training.model_copy(update={"zero_stage": stage})
        source = GlobalBatches(conftest.RandomSamples(), training.global_batch_size, world.rank, world.size)
        seen = test_prompts.train(config.model_copy(update={"training": training}), source, prompts=True)
        assert len(set(map(str, world.gather(seen)))) == 1, "the ranks disagree"
        if world.is_main:
            (folder / f"stage-{stage}.json").write_text(json.dumps(seen))
