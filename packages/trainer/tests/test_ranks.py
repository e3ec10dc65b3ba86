"""The same numbers on one process and on two, whatever the ranks share out: with documents apart and uneven masks."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.config import RunConfig

TwoRanks = Callable[[str, RunConfig, Path], None]
OneProcess = Callable[..., torch.Tensor]


@pytest.fixture(scope="module")
def config() -> RunConfig:
    model = {"hidden_size": 48, "intermediate_size": 96, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2}
    return RunConfig.model_validate(
        {
            "model": {**model, "vocab_size": 503},
            "data": {"sequence_length": 32},
            "optimizer": {"lr": 0.01},
            "training": {"steps": 8, "global_batch_size": 8, "micro_batch_size": 2},
        }
    )


@pytest.fixture(scope="module")
def two_ranks(config: RunConfig, tmp_path_factory: pytest.TempPathFactory, on_two_ranks: TwoRanks) -> Path:
    folder = tmp_path_factory.mktemp("two-ranks")
    on_two_ranks("parity_worker.py", config, folder)
    return folder


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_losses_and_norms_equal_those_of_one_process(
    config: RunConfig, two_ranks: Path, documents_apart: GlobalBatches, on_one_process: OneProcess, zero_stage: int
) -> None:
    first, second = json.loads((two_ranks / f"stage-{zero_stage}.json").read_text())
    assert first == second, "the ranks disagree about the norm or the loss"
    expected = on_one_process(config, documents_apart)
    torch.testing.assert_close(torch.tensor(first, dtype=torch.float64), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_one_process_goes_on_where_two_have_stopped(
    config: RunConfig, two_ranks: Path, documents_apart: GlobalBatches, on_one_process: OneProcess, zero_stage: int
) -> None:
    resumed = on_one_process(config, documents_apart, two_ranks / f"stage-{zero_stage}")
    unbroken = torch.tensor(json.loads((two_ranks / f"stage-{zero_stage}.json").read_text())[0], dtype=torch.float64)
    torch.testing.assert_close(resumed, unbroken[3:], atol=1e-5, rtol=0)
