"""Four ranks of which two share a copy of the model, weights that lie on the host, and layouts that are refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tokenmill_core.errors import ConfigError
from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.config import check_world_size

MakeConfig = Callable[..., RunConfig]
OneProcess = Callable[..., torch.Tensor]


def reports(path: Path) -> torch.Tensor:
    """(loss, norm) of each step, on which all ranks agree."""
    first, *others = json.loads(path.read_text())
    assert all(other == first for other in others), "the ranks disagree about the norm or the loss"
    return torch.tensor(first, dtype=torch.float64)


@pytest.fixture(scope="module")
def config() -> RunConfig:
    model = {"hidden_size": 48, "intermediate_size": 97, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2}
    return RunConfig.model_validate(
        {
            "model": {**model, "vocab_size": 503},
            "data": {"sequence_length": 32},
            "optimizer": {"lr": 0.01},
            "training": {"steps": 6, "global_batch_size": 8, "micro_batch_size": 1, "shard_size": 2},
        }
    )


@pytest.fixture(scope="module")
def four_ranks(
    config: RunConfig,
    tmp_path_factory: pytest.TempPathFactory,
    on_ranks: Callable[[int, str, RunConfig, Path], None],
) -> Path:
    folder = tmp_path_factory.mktemp("four-ranks")
    on_ranks(4, "parity_worker.py", config, folder)
    return folder


def alone(config: RunConfig, **training: object) -> RunConfig:
    settings = config.training.model_copy(update={"shard_size": None, **training})
    return config.model_copy(update={"training": settings})


@pytest.mark.parametrize("stage", range(4))
def test_two_copies_on_two_ranks_each_compute_what_one_process_does(
    config: RunConfig, four_ranks: Path, documents_apart: GlobalBatches, on_one_process: OneProcess, stage: int
) -> None:
    expected = on_one_process(alone(config), documents_apart)
    torch.testing.assert_close(reports(four_ranks / f"stage-{stage}.json"), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("stage", [0, 3])
def test_so_they_do_in_bf16(
    config: RunConfig, four_ranks: Path, documents_apart: GlobalBatches, on_one_process: OneProcess, stage: int
) -> None:
    expected = on_one_process(alone(config, precision="bf16"), documents_apart)
    found = reports(four_ranks / f"bf16-stage-{stage}.json")
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("stage", [1, 3])
def test_one_process_goes_on_where_they_have_stopped(
    config: RunConfig, four_ranks: Path, documents_apart: GlobalBatches, on_one_process: OneProcess, stage: int
) -> None:
    resumed = on_one_process(alone(config), documents_apart, four_ranks / f"stage-{stage}")
    torch.testing.assert_close(resumed, reports(four_ranks / f"stage-{stage}.json")[3:], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("before", "after"), [(0, 3), (3, 0)])
def test_whole_models_and_shared_ones_take_each_other_s_checkpoints(four_ranks: Path, before: int, after: int) -> None:
    resumed, unbroken = reports(four_ranks / f"stage-{before}-to-{after}.json"), reports(four_ranks / "stage-0.json")
    torch.testing.assert_close(resumed, unbroken[3:], atol=1e-5, rtol=0)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("stage", [0, 1, 3])
def test_weights_on_the_host_give_the_same_numbers(
    config: RunConfig, documents_apart: GlobalBatches, on_one_process: OneProcess, precision: str, stage: int
) -> None:
    here = on_one_process(alone(config, precision=precision), documents_apart)
    offloaded = alone(config, precision=precision, cpu_offload=True, zero_stage=stage)
    torch.testing.assert_close(on_one_process(offloaded, documents_apart), here, atol=1e-6, rtol=0)


def test_a_copy_for_computing_is_never_what_is_saved(make_config: MakeConfig, source: GlobalBatches) -> None:
    with initialize(make_config(training={"precision": "bf16"}), source) as engine:
        weight = engine.model.norm.weight
        engine(next(engine.batches()))
        assert engine.model.norm.weight.dtype == torch.bfloat16
        saved = checkpoint.tensors(engine)["model"]["norm.weight"]
        assert saved.dtype == torch.float32
        assert engine.model.norm.weight is weight


def test_ranks_that_make_no_whole_copies_are_refused(make_config: MakeConfig) -> None:
    config = make_config(training={"shard_size": 3, "micro_batch_size": 1})
    with pytest.raises(ConfigError, match=r"training.shard_size: copies on 3 ranks each do not fit on 4;"):
        check_world_size(config, 4)
    with pytest.raises(ValueError, match=r"shard_size: 2 ranks cannot share a copy at zero_stage 0"):
        make_config(training={"shard_size": 2, "zero_stage": 0})
