"""fp16: what the loss scale does when gradients do not fit, and that it is part of a checkpoint."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tokenmill_trainer import Engine, RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.checkpoints.store import require_verified
from tokenmill_trainer.guard.anomaly import NonFiniteError
from tokenmill_trainer.optim.loss_scale import MAX_SCALE, LossScale, LossScaleConfig
from tokenmill_trainer.report import StepReport

INITIAL_SCALE, GROWTH_INTERVAL = 2.0**16, 2000
MakeConfig = Callable[..., RunConfig]


def train(engine: Engine, until: int = 6, spoil: int | None = None, by: float = float("inf")) -> list[StepReport]:
    """The steps up to `until`; the first gradient of step `spoil` is made `by` before the step acts on it."""
    reports = []
    for batch in engine.batches():
        engine.backward(engine(batch))
        if batch.is_last and engine.progress.step + 1 == spoil:
            gradient = engine.model.norm.weight.grad
            gradient[0] = by
        report = engine.step()
        if report is not None:
            reports.append(report)
            if report.progress.step == until:
                break
    return reports


def weights(engine: Engine) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in engine.model.parameters()]


@pytest.mark.parametrize("zero_stage", [1, 3])
def test_fp16_learns_what_fp32_does(make_config: MakeConfig, source: GlobalBatches, zero_stage: int) -> None:
    curves = {}
    for precision in ("fp32", "fp16"):
        training = {"precision": precision, "zero_stage": zero_stage, "micro_batch_size": 4}
        with initialize(make_config(training=training), source) as engine:
            assert {p.dtype for p in engine.model.parameters()} == {torch.float32}
            curves[precision] = torch.tensor([(r.loss, r.grad_norm) for r in train(engine)])
    torch.testing.assert_close(curves["fp16"], curves["fp32"], atol=0.02, rtol=0.02)
    assert not torch.equal(curves["fp16"], curves["fp32"])


@pytest.mark.parametrize("by", [float("inf"), float("nan")])
def test_an_overflow_skips_the_step_and_halves_the_scale(
    make_config: MakeConfig, source: GlobalBatches, by: float
) -> None:
    with initialize(make_config(training={"precision": "fp16"}, ema={"decay": 0.5}), source) as engine:
        train(engine, 2)
        before, state = weights(engine), checkpoint.tensors(engine)
        moments = {name: value.clone() for name, value in state["optimizer"].items()}
        average = {name: value.clone() for name, value in state["ema"].items()}
        (report,) = train(engine, 3, spoil=3, by=by)
        assert report.skipped
        assert report.lr == 0.0
        assert (report.progress.step, report.progress.consumed_samples) == (3, 24)
        assert all(torch.equal(a, b) for a, b in zip(before, weights(engine), strict=True))
        now = checkpoint.tensors(engine)
        assert all(torch.equal(a, now["ema"][name]) for name, a in average.items())
        assert all((value == now["optimizer"][name]).all() for name, value in moments.items())
        assert engine.loss_scale is not None
        assert (engine.loss_scale.scale, engine.loss_scale.skipped_steps) == (INITIAL_SCALE / 2, 1)
        later = train(engine)
        assert [r.skipped for r in later] == [False] * 3
        assert not torch.equal(before[0], weights(engine)[0])


def test_it_grows_after_steps_without_overflow_and_stays_a_power_of_two() -> None:
    scale = LossScale()
    for _ in range(GROWTH_INTERVAL - 1):
        scale.update(overflow=False)
    assert scale.scale == INITIAL_SCALE
    scale.update(overflow=False)
    assert scale.scale == 2 * INITIAL_SCALE
    for _ in range(16 * GROWTH_INTERVAL):
        scale.update(overflow=False)
    assert scale.scale == MAX_SCALE


def test_a_scale_of_one_that_still_overflows_ends_the_run(make_config: MakeConfig, source: GlobalBatches) -> None:
    with initialize(make_config(training={"precision": "fp16"}), source) as engine:
        assert engine.loss_scale is not None
        engine.loss_scale.scale = 1.0
        before = weights(engine)
        with pytest.raises(NonFiniteError, match=r"step 1: loss 6\.\d+, gradient norm inf, on samples 0 to 7"):
            train(engine, 1, spoil=1)
        assert all(torch.equal(a, b) for a, b in zip(before, weights(engine), strict=True))


def test_a_loss_that_is_no_number_is_not_for_the_scale_to_cure(make_config: MakeConfig, source: GlobalBatches) -> None:
    with initialize(make_config(training={"precision": "fp16"}), source) as engine:
        for batch in engine.batches():
            engine.backward(engine(batch) * float("nan"))
            break
        with pytest.raises(NonFiniteError, match="step 1: loss nan"):
            engine.step()


def test_the_scale_is_part_of_a_checkpoint(tmp_path: Path, make_config: MakeConfig, source: GlobalBatches) -> None:
    config = make_config(training={"precision": "fp16"})
    with initialize(config, source) as engine:
        train(engine, 3, spoil=2)
        checkpoint.save(engine, tmp_path)
        expected = [(r.loss, r.grad_norm) for r in train(engine)]
        assert engine.loss_scale is not None
        state = engine.loss_scale.state()
    with initialize(config, source) as engine:
        checkpoint.restore(engine, require_verified(tmp_path, pytest.fail))
        assert engine.loss_scale is not None
        assert engine.loss_scale.state().tolist() == [INITIAL_SCALE / 2, 1, 1, 1]
        assert [(r.loss, r.grad_norm) for r in train(engine)] == expected
        assert torch.equal(engine.loss_scale.state(), state)


def test_ranks_skip_together_whichever_of_them_overflows(
    tmp_path: Path, make_config: MakeConfig, on_two_ranks: Callable[[str, RunConfig, Path], None]
) -> None:
    training = {"precision": "fp16", "steps": 5, "global_batch_size": 16, "micro_batch_size": 4}
    config = make_config(training={**training, "batch_ramp": [[0, 8], [512, 16]]})
    result = tmp_path / "result.json"
    on_two_ranks("overflow_worker.py", config, result)
    stages = json.loads(result.read_text())
    for first, second in stages:
        assert first == second
        *reports, scale = first
        assert [bool(report[0]) for report in reports] == [False, False, True, False, False]
        assert [report[3] for report in reports] == [8, 16, 32, 48, 64]
        assert reports[2][2] == math.inf
        assert scale == [INITIAL_SCALE / 2, 2, 1, 1]
        torch.testing.assert_close(torch.tensor(reports), torch.tensor(stages[0][0][:-1]), atol=1e-5, rtol=1e-5)


def test_with_hysteresis_the_scale_falls_at_a_later_overflow() -> None:
    scale = LossScale(LossScaleConfig(initial_power=4, window=2, hysteresis=2))
    scales = []
    for overflow in (True, True, True, False, False, True, True):
        scale.update(overflow)
        scales.append(scale.scale)
    assert scales == [16, 8, 4, 4, 8, 8, 4]
    assert scale.skipped_steps == 5
