"""Run under torchrun: train models of the user's own and a recomputing decoder, save, and write what happened.

Each rank makes its model from a seed of its own: what is trained has to be rank 0's.
"""

import json
import sys
from pathlib import Path
from typing import Any

import conftest
import torch

from tokenmill_core.errors import ConfigError
from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.layout.recompute import RecomputeConfig
from tokenmill_trainer.model import ModelConfig
from tokenmill_trainer.world import World, start_world

DECODER = {"hidden_size": 48, "intermediate_size": 96, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2}
RUNS = [("hand-made", 0), ("gpt2", 1), ("hand-made", 2), ("llama", 3)]


def train(config: RunConfig, kind: str | None, world: World, folder: Path) -> list[list[float]]:
    source = GlobalBatches(conftest.RandomSamples(), config.batch_plan, world.rank, world.size)
    torch.manual_seed(world.rank)
    reports = []
    with initialize(config, source, model=None if kind is None else conftest.own_model(kind)) as engine:
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
            if report is not None:
                reports.append([report.loss, report.grad_norm])
                if report.progress.step == 2 and kind is not None:
                    checkpoint.save(engine, folder / f"{kind}-{config.training.zero_stage}")
        if kind == "branching":
            reports += [[weight.double().sum().item(), weight.norm().item()] for weight in engine.model.parameters()]
    return reports


def refusal(config: RunConfig, world: World) -> str:
    source = GlobalBatches(conftest.RandomSamples(), config.batch_plan, world.rank, world.size)
    try:
        initialize(config, source, model=conftest.HandMade(width=32 >> world.rank))
    except ConfigError as error:
        return str(error)
    return "not refused"


base, folder = RunConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2])
with start_world() as world:
    results: dict[str, Any] = {}
    for kind, stage in RUNS:
        training = base.training.model_copy(update={"zero_stage": stage})
        results[f"{kind}-{stage}"] = train(base.model_copy(update={"training": training}), kind, world, folder)
    for precision in ("fp32", "bf16"):
        training = base.training.model_copy(update={"precision": precision, "zero_stage": 0})
        branching = base.model_copy(update={"training": training})
        results[f"branching-{precision}"] = train(branching, "branching", world, folder / precision)
    decoder = {
        "model": ModelConfig.model_validate({"vocab_size": conftest.VOCABULARY, **DECODER}),
        "training": base.training.model_copy(update={"zero_stage": 3}),
        "activation_checkpointing": RecomputeConfig.model_validate({"mode": "selective"}),
    }
    results["decoder-3"] = train(base.model_copy(update=decoder), None, world, folder)
    results["refused"] = refusal(base, world)
    for name, result in results.items():
        everywhere = world.gather(result)
        if world.is_main:
            (folder / f"{name}.json").write_text(json.dumps(everywhere))
