"""Train on 4 ranks, save, and go on from there on 2, 1 and 8: what each has then, and its next losses, as JSON.

python reshard_worker.py CONFIG OUT. Every size has a ZeRO stage of its own.
"""

import json
import sys
from pathlib import Path

import conftest
import pytest
import torch
from forked_ranks import on_ranks
from torch.distributed.tensor import DTensor

from tokenmill_trainer import Engine, RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.checkpoints.store import require_verified

SAVED_STEP, SAVED_SIZE = 3, 4
STAGES = {4: 1, 2: 3, 1: 0, 8: 2}
config, out = RunConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2])


def whole_state(engine: Engine) -> dict[str, torch.Tensor]:
    sections = checkpoint.tensors(engine)
    flat = {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}
    return {name: (v.full_tensor() if isinstance(v, DTensor) else v).clone() for name, v in flat.items()}


def go(rank: int, size: int) -> None:
    training = config.training.model_copy(update={"zero_stage": STAGES[size]})
    source = GlobalBatches(conftest.RowsOfDocuments(), training.global_batch_size, rank, size, 1)
    losses, differing = [], []
    with initialize(config.model_copy(update={"training": training}), source) as engine:
        if size != SAVED_SIZE:
            checkpoint.restore(engine, require_verified(out, pytest.fail))
            state, saved = whole_state(engine), torch.load(out / "state.pt")
            assert state.keys() == saved.keys()
            differing = [name for name in saved if not torch.equal(saved[name], state[name])]
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
            if report is None:
                continue
            losses.append(report.loss)
            if size == SAVED_SIZE and report.progress.step == SAVED_STEP:
                checkpoint.save(engine, out)
                state = whole_state(engine)
                if rank == 0:
                    torch.save(state, out / "state.pt")
    if rank == 0:
        (out / f"{size}.json").write_text(json.dumps({"losses": losses, "differing": differing}))


if __name__ == "__main__":
    for size in STAGES:
        codes = on_ranks(size, lambda rank, size=size: go(rank, size))  # type: ignore[misc]
        assert codes == [0] * size, (size, codes)
