"""Experts in the engine: any split of the batch, any layout, stopped and resumed, the numbers stay the same."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tokenmill_trainer import Engine, RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.checkpoints.store import newest_verified

MakeConfig = Callable[..., RunConfig]
EXPERTS = {
    "num_experts": 8,
    "experts_per_token": 2,
    "expert_intermediate_size": 32,
    "num_shared_experts": 1,
    "num_dense_layers": 1,
    "router": "sigmoid",
    "num_groups": 4,
    "groups_per_token": 2,
    "aux_loss": 0.01,
    "z_loss": 0.001,
    "bias_update_rate": 0.02,
}
LATENT = {"q_rank": 24, "kv_rank": 16, "nope_head_dim": 8, "rope_head_dim": 4, "v_head_dim": 8}
DEEPSEEK = {"num_layers": 3, "num_kv_heads": None, "attention": "mla", "mla": LATENT, "moe": EXPERTS, "init_std": 0.1}


def run_steps(engine: Engine, folder: Path | None = None, save_at: int = 0) -> list[list[float]]:
    reports = []
    for batch in engine.batches():
        engine.backward(engine(batch))
        report = engine.step()
        if report is not None:
            reports.append([report.loss, report.penalty, report.grad_norm])
            if folder is not None and report.progress.step == save_at:
                checkpoint.save(engine, folder)
    return reports


def biases(engine: Engine) -> Tensor:
    found = [router.balance_bias for router in engine.model.routers]
    return torch.stack([bias for bias in found if bias is not None])


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_micro_batches_change_neither_losses_nor_gradient_nor_biases(
    make_config: MakeConfig, documents_apart: GlobalBatches, zero_stage: int
) -> None:
    """Of every eighth sample no label counts: alone in its micro-batch, it still loads experts."""
    results = []
    for micro in (8, 1):
        training = {"micro_batch_size": micro, "zero_stage": zero_stage, "steps": 4}
        with initialize(make_config(model=DEEPSEEK, training=training), documents_apart) as engine:
            results.append((torch.tensor(run_steps(engine)), biases(engine).clone()))
    (reports, moved), (reports_1, moved_1) = results
    torch.testing.assert_close(reports_1, reports, atol=1e-5, rtol=1e-5)
    assert reports[:, 1].min() > 0.01, "the routers' losses are part of what is minimised"
    assert torch.equal(moved, moved_1)
    assert moved.abs().max() > 0.02


def test_the_routers_losses_are_means_over_the_global_batch(make_config: MakeConfig, source: GlobalBatches) -> None:
    config = make_config(model=DEEPSEEK, training={"steps": 1, "micro_batch_size": 2})
    with initialize(config, source) as engine:
        with torch.no_grad():
            engine.model(next(source.iterate(0, 1)).inputs)
        expected = engine.model.auxiliary_loss()
        assert expected is not None
        ((_, penalty, _),) = run_steps(engine)
    assert penalty == pytest.approx(expected.item(), rel=1e-5)


def test_a_run_goes_on_bit_for_bit_with_its_biases(
    make_config: MakeConfig, source: GlobalBatches, tmp_path: Path
) -> None:
    config = make_config(model=DEEPSEEK, training={"steps": 6, "micro_batch_size": 4})
    with initialize(config, source) as engine:
        unbroken = run_steps(engine, tmp_path, save_at=3)
        expected = biases(engine).clone()
    with initialize(config, source) as engine:
        found = newest_verified(tmp_path, pytest.fail)
        assert found is not None
        checkpoint.restore(engine, found)
        assert biases(engine).any()
        assert run_steps(engine) == unbroken[3:]
        assert torch.equal(biases(engine), expected)


def test_bf16_computes_about_what_fp32_does(make_config: MakeConfig, source: GlobalBatches) -> None:
    curves = []
    for precision in ("fp32", "bf16"):
        config = make_config(model=DEEPSEEK, training={"steps": 6, "precision": precision})
        with initialize(config, source) as engine:
            curves.append(torch.tensor(run_steps(engine))[:, 0])
    torch.testing.assert_close(curves[1], curves[0], atol=0.03, rtol=0)


@pytest.fixture(scope="module")
def two_ranks(
    tmp_path_factory: pytest.TempPathFactory, on_two_ranks: Callable[[str, RunConfig, Path], None]
) -> tuple[RunConfig, Path]:
    folder = tmp_path_factory.mktemp("two-ranks")
    shape: dict[str, Any] = {"vocab_size": 503, "hidden_size": 48, "intermediate_size": 96, "num_heads": 6}
    config = RunConfig.model_validate(
        {
            "model": {**shape, **DEEPSEEK},
            "data": {"sequence_length": 32},
            "optimizer": {"lr": 0.01},
            "training": {"steps": 5, "global_batch_size": 8, "micro_batch_size": 2},
        }
    )
    on_two_ranks("parity_worker.py", config, folder)
    return config, folder


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_two_ranks_compute_what_one_does_and_one_goes_on_from_them(
    two_ranks: tuple[RunConfig, Path],
    documents_apart: GlobalBatches,
    on_one_process: Callable[..., Tensor],
    zero_stage: int,
) -> None:
    config, folder = two_ranks
    first, second = json.loads((folder / f"stage-{zero_stage}.json").read_text())
    assert first == second, "the ranks disagree about the norm or the loss"
    alone = on_one_process(config, documents_apart)
    torch.testing.assert_close(torch.tensor(first, dtype=torch.float64), alone, atol=1e-5, rtol=1e-5)
    resumed = on_one_process(config, documents_apart, folder / f"stage-{zero_stage}")
    torch.testing.assert_close(resumed, alone[3:], atol=1e-5, rtol=1e-5)
