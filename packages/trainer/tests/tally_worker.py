"""Run under torchrun: one step on samples of several sources, and a validation; each rank writes what it was told."""

import json
import sys
from pathlib import Path

import conftest

from tokenmill_shards.open_samples import load_samples_manifest
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.batches.tokenizer import read_byte_lengths
from tokenmill_trainer.build import initialize
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.evaluation.validation import validate
from tokenmill_trainer.world import start_world

config, folder = RunConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2])
reader = MixtureReader.open(config.data.mixture, config.data.sequence_length)
with start_world() as world:
    source = GlobalBatches(conftest.OfSources(mixed=True), 8, world.rank, world.size)
    with initialize(config, source, source_names=conftest.SOURCES) as engine:
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
        validated = validate(
            engine.model,
            world,
            reader,
            config.validation,
            micro_batch_size=config.training.micro_batch_size,
            consumed_samples=0,
            byte_lengths=read_byte_lengths(load_samples_manifest(config.data.mixture)),
        )
        told = {"loss_by_source": report.tally.loss_by_source, "tokens_by_source": report.tally.tokens_by_source}
        (folder / f"{world.rank}.json").write_text(json.dumps(told | validated))
