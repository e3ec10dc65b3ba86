"""Steps whose numbers are no numbers, or spike: judged, left out, and counted, with nothing changed by them."""

import json
import math
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tokenmill_trainer import Engine, RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.checkpoints.store import require_verified
from tokenmill_trainer.guard.anomaly import Action, AnomalyKind, GuardError, NonFiniteError
from tokenmill_trainer.guard.judge import GuardConfig, Judge
from tokenmill_trainer.report import StepReport

MakeConfig = Callable[..., RunConfig]
LEVEL = [2.0, 2.1, 1.9, 2.05, 1.95, 2.0]


def judge_all(judge: Judge, losses: list[float], first: int = 1) -> list[Any]:
    return [judge.judge(first + n, range(n, n + 1), loss, 1 + loss / 10) for n, loss in enumerate(losses)]


def test_a_spike_lies_more_than_six_deviations_above_the_mean_of_the_window() -> None:
    limit = statistics.mean(LEVEL[1:]) + 6 * statistics.stdev(LEVEL[1:])
    for loss, is_spike in ((limit * 1.0001, True), (limit * 0.9999, False)):
        judge = Judge(GuardConfig(window=5, min_history=5, spike="skip"))
        assert judge_all(judge, LEVEL) == [None] * 6
        found = judge.judge(7, range(6, 7), loss, 1.0)
        assert (found is not None) == is_spike
    judge = Judge(GuardConfig(window=5, min_history=5, spike="skip"))
    judge_all(judge, LEVEL)
    found = judge.judge(7, range(6, 7), 2.0, 99.0)
    assert found is not None
    assert (found.kind, found.action) == (AnomalyKind.SPIKE, Action.SKIP)
    assert found.max_loss == pytest.approx(limit)
    assert "gradient norm 99 is above 1.2" in str(found)
    assert "loss 2" not in str(found)


def test_nothing_spikes_before_there_is_a_history() -> None:
    judge = Judge(GuardConfig(window=128, min_history=6))
    assert judge_all(judge, [*LEVEL[:5], 1e9]) == [None] * 6


def test_one_outlier_does_not_hide_the_next_and_a_new_level_is_learnt() -> None:
    judge = Judge(GuardConfig(window=64, min_history=6, spike="note"))
    judge_all(judge, LEVEL * 8)
    found = judge_all(judge, [1e6, 2.0, 4.0], first=100)
    assert [one is not None for one in found] == [True, False, True]
    found = judge_all(judge, [4.0] * 40, first=200)
    learnt_after = sum(one is not None for one in found)
    assert 1 < learnt_after < 15
    assert found[learnt_after:] == [None] * (40 - learnt_after)


@pytest.mark.parametrize("level", [2.0, 2.3, 0.1, 0.0])
@pytest.mark.parametrize("by", [1e-3, 0.5, 1e6])
def test_a_new_level_is_learnt_where_all_before_were_equal(level: float, by: float) -> None:
    judge = Judge(GuardConfig(spike="skip"))
    found = judge_all(judge, [level] * 200 + [level + by] * 200)
    spikes = [n for n, one in enumerate(found) if one is not None]
    assert len(spikes) < judge.config.max_skips
    assert all(one < 220 for one in spikes)


def test_values_that_are_no_numbers_do_not_enter_the_window() -> None:
    judge = Judge(GuardConfig(window=16, min_history=6, non_finite="skip"))
    judge_all(judge, [*LEVEL, math.nan, *LEVEL, math.inf])
    assert judge.judge(20, range(1), 2.0, 1.2) is None
    assert judge.judge(21, range(1), 3.0, 1.2) is not None


def test_one_more_than_max_skips_in_a_window_ends_the_run() -> None:
    judge = Judge(GuardConfig(window=10, non_finite="skip", max_skips=3))
    actions = [judge.judge(step, range(1), math.nan, 1.0) for step in (1, 2, 3, 12, 13)]
    assert [one.action for one in actions if one] == [Action.SKIP] * 5
    last = judge.judge(14, range(1), math.nan, 1.0)
    assert last is not None
    assert last.action is Action.SKIP
    last = judge.judge(15, range(1), math.nan, 1.0)
    assert last is not None
    assert last.action is Action.STOP
    assert "of the last 10 steps, 4 would be left out and guard.max_skips is 3" in str(last.error())


def test_a_judge_that_was_saved_judges_as_the_one_that_goes_on() -> None:
    config = GuardConfig(window=16, min_history=6, spike="skip", max_skips=2)
    whole, first, second = Judge(config), Judge(config), Judge(config)
    losses = [*LEVEL, 9.0, *LEVEL, *LEVEL, 9.0, *LEVEL, 9.0, 9.0]
    expected = judge_all(whole, losses)
    judge_all(first, losses[:15])
    second.restore(first.state())
    now = [second.judge(1 + n, range(n, n + 1), losses[n], 1 + losses[n] / 10) for n in range(15, len(losses))]
    assert now == expected[15:]
    assert [one.action for one in expected if one] == [Action.SKIP, Action.SKIP, Action.SKIP, Action.STOP]


def state_of(engine: Engine) -> dict[str, torch.Tensor]:
    """Whatever a step may change, by name."""
    sections = checkpoint.tensors(engine)
    sections["buffers"] = dict(engine.model.named_buffers())
    values = {f"{part}.{name}": value for part in sections if part != "guard" for name, value in sections[part].items()}
    return {name: getattr(value, "full_tensor", lambda v=value: v)().clone() for name, value in values.items()}


def run(engine: Engine, spoil: Mapping[int, Callable[[Engine, torch.Tensor], torch.Tensor]]) -> list[StepReport]:
    """All steps; what `spoil` has for a step changes its loss, or its gradient after backward."""
    reports = []
    for batch in engine.batches():
        loss, by = engine(batch), spoil.get(engine.progress.step + 1)
        engine.backward(loss if by is None else by(engine, loss))
        report = engine.step()
        if report is not None:
            reports.append(report)
    return reports


def nan_loss(engine: Engine, loss: torch.Tensor) -> torch.Tensor:
    return loss * math.nan


def inf_gradient(engine: Engine, loss: torch.Tensor) -> torch.Tensor:
    """Infinity in one element of one gradient."""

    def spoil(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad[0] = math.inf
        handle.remove()

    weight = engine.model.norm.weight
    assert isinstance(weight, torch.Tensor)
    handle = weight.register_post_accumulate_grad_hook(spoil)  # type: ignore[no-untyped-call]
    return loss


MOE = {"num_experts": 4, "experts_per_token": 2, "expert_intermediate_size": 32, "bias_update_rate": 0.01}


@pytest.mark.parametrize("spoil", [nan_loss, inf_gradient])
@pytest.mark.parametrize("zero_stage", [0, 3])
def test_a_step_that_is_left_out_changes_nothing_but_the_samples_consumed(
    make_config: MakeConfig, source: GlobalBatches, spoil: Any, zero_stage: int
) -> None:
    config = make_config(guard={"non_finite": "skip"}, ema={"decay": 0.9}, training={"zero_stage": zero_stage})
    with initialize(config, source) as engine:
        states = [state_of(engine)]
        reports = []
        for batch in engine.batches():
            loss = engine(batch)
            engine.backward(spoil(engine, loss) if engine.progress.step == 2 else loss)
            report = engine.step()
            assert report is not None
            reports.append(report)
            states.append(state_of(engine))
        assert [report.skipped for report in reports] == [False, False, True, False, False, False]
        assert all(torch.equal(value, states[3][name]) for name, value in states[2].items())
        assert not torch.equal(states[3]["model.norm.weight"], states[4]["model.norm.weight"])
        assert any(name.startswith("ema.") for name in states[0])
        assert engine.progress.consumed_samples == 48
        (part,) = engine.progress.skipped
        assert (part.first, part.stop, part.step, part.reason) == (16, 24, 3, "non_finite")
        assert reports[2].lr == 0
        assert reports[2].anomaly is not None
        assert reports[2].anomaly.samples == range(16, 24)


def test_router_biases_stay_as_they_were(make_config: MakeConfig, source: GlobalBatches) -> None:
    config = make_config(guard={"non_finite": "skip"}, model={"moe": MOE}, training={"steps": 3})
    with initialize(config, source) as engine:
        biases = []
        for batch in engine.batches():
            loss = engine(batch)
            engine.backward(loss * math.nan if engine.progress.step == 1 else loss)
            engine.step()
            biases.append(
                torch.stack([bias for router in engine.model.routers if (bias := router.balance_bias) is not None])
            )
        assert torch.equal(biases[0], biases[1])
        assert not torch.equal(biases[1], biases[2])


class Normed(nn.Module):
    """With state that a forward changes, and a mask of −∞."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.norm, self.spoils = inner, nn.BatchNorm1d(503), False
        self.register_buffer("mask", torch.full((4,), -math.inf))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits = self.inner(ids) * (math.nan if self.spoils else 1.0)
        return self.norm(logits.mT).mT  # type: ignore[no-any-return]


def test_buffers_stay_as_they_were_and_nan_in_one_is_never_saved(
    tmp_path: Path, make_config: MakeConfig, make_own_model: Callable[[str], nn.Module], source: GlobalBatches
) -> None:
    values = make_config(guard={"non_finite": "skip"}, training={"steps": 3, "micro_batch_size": 4}).model_dump()
    config, model = RunConfig.model_validate({**values, "model": {}}), Normed(make_own_model("hand-made"))
    with initialize(config, source, model=model) as engine:
        states = []
        for batch in engine.batches():
            model.spoils = engine.progress.step == 1 and batch.is_last
            engine.backward(engine(batch))
            if engine.step() is not None:
                states.append({name: buffer.clone() for name, buffer in model.named_buffers()})
        first, second, third = states
        assert all(torch.equal(first[name], second[name]) for name in first)
        assert [int(state["norm.num_batches_tracked"]) for state in states] == [2, 2, 4]
        assert not torch.equal(second["norm.running_mean"], third["norm.running_mean"])
        checkpoint.save(engine, tmp_path)
        model.norm.running_mean[0] = math.nan  # type: ignore[index]
        engine.progress = engine.progress.__class__(step=4)
        with pytest.raises(NonFiniteError, match="buffers NaN"):
            checkpoint.save(engine, tmp_path)


def test_five_steps_without_numbers_are_left_out_or_end_the_run(make_config: MakeConfig, source: GlobalBatches) -> None:
    spoil = dict.fromkeys(range(2, 7), nan_loss)
    config = make_config(guard={"non_finite": "skip", "max_skips": 5}, training={"steps": 8})
    with initialize(config, source) as engine:
        assert sum(report.skipped for report in run(engine, spoil)) == 5
        assert [part.step for part in engine.progress.skipped] == [2, 3, 4, 5, 6]
    config = make_config(guard={"non_finite": "skip", "max_skips": 3}, training={"steps": 8})
    with initialize(config, source) as engine:
        with pytest.raises(NonFiniteError, match=r"step 5: loss nan.* on samples 32 to 39.*guard.max_skips is 3"):
            run(engine, spoil)
        assert engine.progress.step == 4


@pytest.mark.parametrize("action", ["note", "skip", "stop"])
def test_a_loss_that_spikes_is_noted_left_out_or_ends_the_run(
    make_config: MakeConfig, source: GlobalBatches, action: str
) -> None:
    config = make_config(guard={"spike": action, "min_history": 4, "window": 8}, training={"steps": 8})
    spoil = {7: lambda engine, loss: loss * 50}
    with initialize(config, source) as engine:
        if action == "stop":
            with pytest.raises(
                GuardError, match=r"step 7: loss 3.* is above .*; the weights are those before this step"
            ):
                run(engine, spoil)
            return
        reports = run(engine, spoil)
        assert [report.anomaly is not None for report in reports] == [False] * 6 + [True, False]
        assert reports[6].skipped == (action == "skip")
        assert (reports[6].lr == 0) == (action == "skip")


def decided(report: StepReport) -> tuple[Any, ...]:
    """A report without the memory that the process has needed so far."""
    return report.progress, report.loss, report.grad_norm, report.lr, report.skipped, report.anomaly


def test_decisions_and_skipped_samples_go_on_from_a_checkpoint(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches
) -> None:
    config = make_config(guard={"spike": "skip", "min_history": 4, "window": 8}, training={"steps": 10})
    spoil = {step: lambda engine, loss: loss * 50 for step in (6, 9)}
    with initialize(config, source) as engine:
        expected = run(engine, spoil)
    with initialize(config.model_copy(), source) as engine:
        for batch in engine.batches():
            loss, by = engine(batch), spoil.get(engine.progress.step + 1)
            engine.backward(loss if by is None else by(engine, loss))
            engine.step()
            if engine.progress.step == 7:
                break
        path = checkpoint.save(engine, tmp_path)
    saved = json.loads((path / "manifest.json").read_text())
    assert saved["skipped"] == [{"first": 40, "stop": 48, "step": 6, "reason": "spike"}]
    with initialize(config, source) as engine:
        checkpoint.restore(engine, require_verified(tmp_path, pytest.fail))
        assert [decided(report) for report in run(engine, spoil)] == [decided(report) for report in expected[7:]]
        assert [report.skipped for report in expected[7:]] == [False, True, False]


def test_weights_poisoned_outside_of_a_step_are_never_saved(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches
) -> None:
    with initialize(make_config(guard={"non_finite": "skip"}), source) as engine:
        checkpoint.save(engine, tmp_path)
        with torch.no_grad():
            next(engine.model.parameters()).mul_(math.nan)
        engine.progress = engine.progress.__class__(step=1)
        with pytest.raises(NonFiniteError, match="NaN or infinity"):
            checkpoint.save(engine, tmp_path)
        assert require_verified(tmp_path, pytest.fail).manifest.step == 0
