"""Rates as functions of consumed samples, and steps that grow."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tokenmill_core.errors import ConfigError
from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.batch_plan import BatchPlan
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint
from tokenmill_trainer.checkpoints.store import list_checkpoints, require_verified
from tokenmill_trainer.optim import ScheduleConfig, learning_rate
from tokenmill_trainer.resume import check_resumable

MakeConfig = Callable[..., RunConfig]


def rates(schedule: ScheduleConfig, warmup: int, total: int, peak: float = 1.0) -> list[float]:
    """Of the steps 1 to `total`."""
    return [learning_rate(step, total, warmup, peak, schedule) for step in range(1, total + 1)]


def cosine_by_steps(step: int, total_steps: int, warmup_steps: int, peak: float, floor: float) -> float:
    if step < warmup_steps:
        return peak * step / warmup_steps
    decay_steps = total_steps - warmup_steps
    progress = min(1.0, (step - warmup_steps) / decay_steps) if decay_steps > 0 else 0.0
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2)


def test_cosine_warms_up_and_falls() -> None:
    got = rates(ScheduleConfig(min_lr_ratio=0.1), 10, 40, 1e-3)
    assert got[0] == pytest.approx(1e-4)
    assert got[9] == 1e-3
    assert got[24] == pytest.approx(1e-3 * (0.1 + 0.9 / 2))
    assert got[39] == pytest.approx(1e-4)
    assert got[:10] == sorted(got[:10])
    assert got[9:] == sorted(got[9:], reverse=True)


def test_linear_falls_evenly_to_its_floor() -> None:
    got = rates(ScheduleConfig(kind="linear", min_lr_ratio=0.2), 4, 12)
    assert got[3:] == pytest.approx(np.linspace(1.0, 0.2, 9).tolist())


@pytest.mark.parametrize(("shape", "half_way"), [("linear", 0.5), ("one_minus_sqrt", 1 - math.sqrt(0.5))])
def test_wsd_is_stable_and_decays_at_the_end(shape: str, half_way: float) -> None:
    schedule = ScheduleConfig.model_validate(
        {"kind": "wsd", "decay_share": 0.2, "decay_shape": shape, "min_lr_ratio": 0}
    )
    got = rates(schedule, 10, 100)
    assert got[9:80] == [1.0] * 71
    assert got[89] == pytest.approx(half_way)
    assert got[99] == 0.0
    assert got[80:] == sorted(got[80:], reverse=True)


def test_inverse_square_root_and_constant_know_no_end() -> None:
    inverse = ScheduleConfig(kind="inverse_sqrt", warmup_steps=4, min_lr_ratio=0.25)
    assert rates(inverse, 4, 16)[3:16:4] == pytest.approx([1.0, math.sqrt(4 / 8), math.sqrt(4 / 12), 0.5])
    assert learning_rate(10**6, 16, 4, 1.0, inverse) == 0.25
    assert learning_rate(9, 16, 4, 1.0, inverse) == learning_rate(9, 10**9, 4, 1.0, inverse)
    assert rates(ScheduleConfig(kind="constant"), 2, 5) == [0.5, 1.0, 1.0, 1.0, 1.0]


def test_without_warm_up_or_without_decay() -> None:
    assert rates(ScheduleConfig(min_lr_ratio=0), 0, 4)[0] == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    for kind in ("cosine", "linear", "wsd"):
        assert rates(ScheduleConfig.model_validate({"kind": kind}), 5, 5)[-1] == 1.0


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(ValidationError, match="warmup_tokens: 2000000000 and warmup_steps 3 both say"):
        ScheduleConfig.model_validate({"warmup_tokens": "2B", "warmup_steps": 3})
    with pytest.raises(ValidationError, match="kind: inverse_sqrt falls from the end of a warm-up; set warmup_steps"):
        ScheduleConfig(kind="inverse_sqrt")
    with pytest.raises(ValidationError, match=r"schedule.warmup_tokens: 2000 is more than the run's 1536 tokens"):
        RunConfig.model_validate(
            {
                "data": {"sequence_length": 32},
                "schedule": {"warmup_tokens": "2k"},
                "training": {"steps": 6, "global_batch_size": 8, "micro_batch_size": 8},
            }
        )


def run(config: RunConfig, source: GlobalBatches, stops: tuple[int, ...], folder: Path) -> list[tuple[int, float, int]]:
    """(consumed samples, rate, first sample) of every step of a run that stops after each of `stops` and is resumed."""
    return [report for stop in (*stops, config.training.steps) for report in go_on(config, source, stop, folder)]


def go_on(config: RunConfig, source: GlobalBatches, stop: int, folder: Path) -> list[tuple[int, float, int]]:
    """The same up to step `stop`, after which the state is saved, from the newest checkpoint if there is one.

    The rate is the one that the optimizer finds as it begins to update.
    """
    reports, used = [], []
    with initialize(config, source) as engine:
        if list_checkpoints(folder):
            checkpoint.restore(engine, require_verified(folder, pytest.fail))
        engine.optimizer.register_step_pre_hook(
            lambda optimizer, *_: used.append({group["lr"] for group in optimizer.param_groups})
        )
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
            if report is not None:
                (rate,) = used[-1]
                assert report.lr == rate
                reports.append((report.progress.consumed_samples, rate, report.first_sample))
                if report.progress.step == stop:
                    break
        assert len(used) == len(reports)
        checkpoint.save(engine, folder)
    return reports


TINY = {"hidden_size": 8, "intermediate_size": 8, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1}


@pytest.mark.parametrize("kind", ["cosine", "linear", "wsd", "inverse_sqrt"])
def test_a_run_that_is_stopped_twice_has_the_rates_of_an_unbroken_one(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches, kind: str
) -> None:
    schedule = {"kind": kind, "warmup_steps": 10}
    config = make_config(model=TINY, schedule=schedule, training={"steps": 40})
    broken = run(config, source, (7, 20), tmp_path)
    assert [lr for _, lr, _ in broken] == rates(config.schedule, 10, 40, config.optimizer.lr)
    if kind == "cosine":  # as it was when it was counted in steps, to the last bit
        assert [lr for _, lr, _ in broken] == [cosine_by_steps(step, 40, 10, 0.01, 0.1) for step in range(1, 41)]

    longer = make_config(model=TINY, schedule=schedule, training={"steps": 80})
    manifest = require_verified(tmp_path, pytest.fail).manifest
    with pytest.raises(ConfigError, match=r"training.steps: 80 here, 40 in the checkpoint; .*--allow-change schedule"):
        check_resumable(longer, None, manifest, ())
    check_resumable(longer, None, manifest, {"schedule"})


@pytest.mark.parametrize(
    ("changed", "total", "peak"),
    [({"training": {"steps": 80}}, 80, 0.01), ({"training": {"steps": 40}, "optimizer": {"lr": 0.03}}, 40, 0.03)],
)
@pytest.mark.parametrize("stop", [7, 20])
def test_a_schedule_that_was_changed_on_purpose_is_the_one_that_is_used(
    tmp_path: Path,
    make_config: MakeConfig,
    source: GlobalBatches,
    changed: dict[str, Any],
    total: int,
    peak: float,
    stop: int,
) -> None:
    fixed = {"model": TINY, "schedule": {"warmup_steps": 10}}
    before, after = make_config(**fixed, training={"steps": 40}), make_config(**fixed, **changed)
    first = go_on(before, source, stop, tmp_path)
    manifest = require_verified(tmp_path, pytest.fail).manifest
    with pytest.raises(ConfigError, match="--allow-change schedule"):
        check_resumable(after, None, manifest, ())
    check_resumable(after, None, manifest, {"schedule"})
    rest = go_on(after, source, 25, tmp_path)
    assert [lr for _, lr, _ in first] == [cosine_by_steps(step, 40, 10, 0.01, 0.1) for step in range(1, stop + 1)]
    assert [lr for _, lr, _ in rest] == [cosine_by_steps(step, total, 10, peak, 0.1) for step in range(stop + 1, 26)]


def test_a_plan_steps_over_its_boundaries() -> None:
    plan = BatchPlan.ramp([(0, 8), (20 * 32, 16), (60 * 32 - 31, 32)], 32)
    assert plan.starts == (0, 20, 60)
    assert list(plan.steps_from(0, 8)) == [0, 8, 16, 24, 40, 56, 72, 104]
    for consumed in (0, 16, 24, 72):
        starts = list(plan.steps_from(consumed, 7))
        assert [plan.after(consumed, steps) for steps in range(7)] == starts
    assert plan.after(0, 10**9) == plan.after(0, 7) + (10**9 - 7) * 32
    assert list(BatchPlan.constant(5).steps_from(10, 3)) == [10, 15, 20]


def test_a_ramp_changes_neither_the_order_nor_what_a_resume_gives(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches
) -> None:
    training = {"steps": 9, "global_batch_size": 16, "micro_batch_size": 4}
    training["batch_ramp"] = [[0, 4], ["320", 8], [1000, 16]]
    config = make_config(model=TINY, schedule={"kind": "linear", "warmup_tokens": "640"}, training=training)
    data = GlobalBatches(source.reader, config.batch_plan)
    unbroken, broken = run(config, data, (), tmp_path / "one"), run(config, data, (2, 5), tmp_path / "two")
    assert broken == unbroken
    assert [first for _, _, first in unbroken] == [0, 4, 8, 12, 20, 28, 36, 52, 68]
    assert [consumed for consumed, _, _ in unbroken] == [4, 8, 12, 20, 28, 36, 52, 68, 84]
    expected = [learning_rate(consumed, 84, 20, 0.01, config.schedule) for consumed, _, _ in unbroken]
    assert [lr for _, lr, _ in unbroken] == pytest.approx(expected, rel=1e-12)
    seen = [
        int(i)
        for batch in data.iterate(0, 9)
        for i in range(batch.first_sample, batch.first_sample + len(batch.inputs))
    ]
    assert seen == list(range(84))


def test_ramps_that_cannot_be_are_refused(make_config: MakeConfig) -> None:
    base = {"global_batch_size": 16, "micro_batch_size": 4}
    for ramp, message in (
        ([[1, 8], [64, 16]], r"batch_ramp: its tokens are \[1, 64\]; they must begin with 0 and rise"),
        ([[0, 8], [0, 16]], r"batch_ramp: its tokens are \[0, 0\]"),
        ([[0, 8], ["1B", 32]], "global_batch_size: 16 is not what batch_ramp ends with; set it to 32"),
        ([[0, 6], ["1B", 16]], "training.batch_ramp: 6 is not a multiple of training.micro_batch_size 4; set it to 8"),
    ):
        with pytest.raises(ValidationError, match=message):
            make_config(training={**base, "batch_ramp": ramp})


def test_a_ramp_survives_the_settings_file(make_config: MakeConfig, tmp_path: Path) -> None:
    from tokenmill_core.config import dump_toml, load_config

    training = {"global_batch_size": 16, "batch_ramp": [[0, 8], ["1B", 16]]}
    groups = [{"match": "norm", "lr_scale": 0.5}]
    config = make_config(training=training, optimizer={"groups": groups}, schedule={"warmup_tokens": "10"})
    (tmp_path / "config.toml").write_text(dump_toml(config))
    assert load_config(RunConfig, str(tmp_path / "config.toml"), ()) == config
    assert json.loads(config.model_dump_json())["training"]["batch_ramp"] == [[0, 8], [10**9, 16]]


@pytest.mark.parametrize("ramp", [[(0, 8)], [(0, 8), (20, 16), (60, 32)], [(0, 8), (1, 3)]])
def test_a_run_has_the_fewest_steps_that_reach_its_tokens(ramp: list[tuple[int, int]]) -> None:
    plan = BatchPlan.ramp(ramp, 1)
    for samples in range(1, 200):
        steps = plan.steps_for(samples)
        assert plan.after(0, steps) >= samples > plan.after(0, steps - 1)


def test_tokens_decide_the_steps(make_config: Callable[..., RunConfig], source: GlobalBatches) -> None:
    config = make_config(training={"tokens": "2K", "steps": 1}, schedule={"warmup_steps": 3})
    with initialize(config, source) as engine:
        assert (engine.config.training.steps, engine.config.training.tokens) == (8, None)
    with pytest.raises(ConfigError, match=r"schedule\.warmup_steps: 9 is more than training\.steps 8"):
        initialize(make_config(training={"tokens": "2K"}, schedule={"warmup_steps": 9}), source)


def test_learned_positions_reach_as_far_as_the_samples(make_config: Callable[..., RunConfig]) -> None:
    model = {"position": "learned", "max_positions": 16}
    with pytest.raises(ValueError, match=r"data\.sequence_length: 32 tokens need more than model\.max_positions 16"):
        make_config(model=model)
