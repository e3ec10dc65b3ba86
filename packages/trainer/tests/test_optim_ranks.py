"""Muon and Adafactor at each ZeRO stage: two ranks compute what one process does, and one goes on where two stopped."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.config import RunConfig

TOLERANCE = 5e-5
TwoRanks = Callable[[str, RunConfig, Path], None]
OneProcess = Callable[..., torch.Tensor]


@pytest.fixture(scope="module", params=["muon", "adafactor"])
def config(request: pytest.FixtureRequest) -> RunConfig:
    model = {"hidden_size": 48, "intermediate_size": 97, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2}
    return RunConfig.model_validate(
        {
            "model": {**model, "vocab_size": 503},
            "data": {"sequence_length": 32},
            "optimizer": {"kind": request.param, "lr": 0.01},
            "ema": {"decay": 0.9},
            "loss": {"chunk_tokens": 40, "z_loss": 1e-4},
            "training": {"steps": 6, "global_batch_size": 8, "micro_batch_size": 2, "max_grad_norm": 0.1},
        }
    )


@pytest.fixture(scope="module")
def two_ranks(config: RunConfig, tmp_path_factory: pytest.TempPathFactory, on_two_ranks: TwoRanks) -> Path:
    folder = tmp_path_factory.mktemp("two-ranks")
    on_two_ranks("parity_worker.py", config, folder)
    return folder


def test_every_stage_computes_what_one_process_does(
    config: RunConfig, two_ranks: Path, documents_apart: GlobalBatches, on_one_process: OneProcess
) -> None:
    expected = on_one_process(config, documents_apart)
    for stage in range(4):
        first, second = json.loads((two_ranks / f"stage-{stage}.json").read_text())
        assert first == second, "the ranks disagree about the norm or the loss"
        torch.testing.assert_close(torch.tensor(first, dtype=torch.float64), expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("stage", [0, 3])
def test_one_process_goes_on_where_two_have_stopped(
    config: RunConfig, two_ranks: Path, documents_apart: GlobalBatches, on_one_process: OneProcess, stage: int
) -> None:
    unbroken = torch.tensor(json.loads((two_ranks / f"stage-{stage}.json").read_text())[0], dtype=torch.float64)
    resumed = on_one_process(config, documents_apart, two_ranks / f"stage-{stage}")
    torch.testing.assert_close(resumed, unbroken[3:], atol=TOLERANCE, rtol=0)
