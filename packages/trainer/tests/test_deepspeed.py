"""`--deepspeed ds.json`: what is taken over, what has nothing to set here, and what is refused by name."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenmill_core.config import load_config, merge, validate_config
from tokenmill_core.errors import ConfigError
from tokenmill_trainer.cli.settings import read_settings
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.deepspeed import RunValues, read_deepspeed, translate
from tokenmill_trainer.optim.schedules import learning_rate

Pretrain = Callable[..., subprocess.CompletedProcess[str]]

COMMON: dict[str, Any] = {
    "fp16": {
        "enabled": "auto",
        "loss_scale": 0,
        "loss_scale_window": 1000,
        "initial_scale_power": 16,
        "hysteresis": 2,
        "min_loss_scale": 1,
    },
    "bf16": {"enabled": True},
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": 3e-4, "betas": [0.9, 0.98], "eps": 1e-7, "weight_decay": "auto"},
    },
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {"warmup_min_lr": 3e-5, "warmup_max_lr": 3e-4, "warmup_num_steps": 20, "total_num_steps": 200},
    },
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "sub_group_size": 1e9,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": 5e7,
        "stage3_gather_16bit_weights_on_model_save": True,
        "offload_optimizer": {"device": "none", "pin_memory": True},
    },
    "gradient_accumulation_steps": 4,
    "gradient_clipping": 0.5,
    "steps_per_print": 7,
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": 2,
    "wall_clock_breakdown": False,
    "tensorboard": {"enabled": False, "output_path": "logs", "job_name": "x"},
}
"""The keys that most configs have."""


def settings_of(document: dict[str, Any], world_size: int = 1) -> RunConfig:
    return validate_config(RunConfig, translate(document, RunValues(world_size)).settings, "ds.json")


def test_a_common_config_is_taken_over() -> None:
    config = settings_of(COMMON, world_size=8)
    training = config.training
    assert (training.global_batch_size, training.micro_batch_size, training.steps) == (64, 2, 200)
    assert (training.precision, training.zero_stage, training.max_grad_norm) == ("bf16", 3, 0.5)
    optimizer = config.optimizer
    assert (optimizer.kind, optimizer.lr, optimizer.betas, optimizer.eps) == ("adamw", 3e-4, (0.9, 0.98), 1e-7)
    assert optimizer.weight_decay == RunConfig().optimizer.weight_decay
    schedule = config.schedule
    assert (schedule.kind, schedule.warmup_steps, schedule.warmup_shape) == ("linear", 20, "log")
    assert schedule.warmup_min_ratio == pytest.approx(0.1)
    assert schedule.min_lr_ratio == pytest.approx(0.1)
    assert config.logging.interval == 7
    hints = translate(COMMON, RunValues(8)).hints
    assert "zero_optimization.overlap_comm" in hints
    assert "zero_optimization.offload_optimizer.pin_memory" in hints
    assert "zero_optimization.stage" not in hints


def deepspeed_rate(kind: str, shape: str, iteration: int, low: float = 0.0) -> float:
    """The rate of DeepSpeed 0.19.8 at its iteration, written from its documentation: peak 0.01, 10 of 40 steps."""
    import math

    rise = iteration / 10 if shape == "linear" else math.log(iteration + 1) / math.log(10)
    if iteration < 10:
        return low + (0.01 - low) * rise
    if kind == "WarmupLR":
        return 0.01
    if kind == "WarmupDecayLR":
        return low + (0.01 - low) * (40 - iteration) / 30
    return 0.01 * (0.0001 + 0.9999 * (1 + math.cos(math.pi * min(1, (iteration - 10 + 1) / 30))) / 2)


@pytest.mark.parametrize("shape", ["linear", "log"])
@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("WarmupLR", {"warmup_min_lr": 0.001, "warmup_max_lr": 0.01}),
        ("WarmupDecayLR", {"warmup_max_lr": 0.01, "total_num_steps": 40}),
        ("WarmupDecayLR", {"warmup_min_lr": 0.002, "warmup_max_lr": "auto", "total_num_steps": 40}),
        ("WarmupCosineLR", {"total_num_steps": 40}),
    ],
)
def test_rates_are_those_of_deepspeed(kind: str, params: dict[str, Any], shape: str) -> None:
    document = {
        "optimizer": {"type": "Adam", "params": {"lr": 0.01}},
        "scheduler": {"type": kind, "params": {**params, "warmup_num_steps": 10, "warmup_type": shape}},
    }
    config = settings_of({**document, "train_batch_size": 8})
    # Its logarithm and its cosine count a step from 1 where its lines count from 0.
    warm, cold = (-1 if shape == "log" else 0), (-1 if kind == "WarmupCosineLR" else 0)
    for step in range(1, 41):
        ours = learning_rate(step, 40, 10, config.optimizer.lr, config.schedule)
        iteration = step + (warm if step < 10 else cold)
        if step != 10:  # where warm-up and decay meet, one of the two
            theirs = deepspeed_rate(kind, shape, iteration, params.get("warmup_min_lr", 0.0))
            assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-15), step


@pytest.mark.parametrize(
    ("given", "ranks", "batch"),
    [
        ({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4}, 2, (32, 4)),
        ({"train_batch_size": 32, "gradient_accumulation_steps": 4}, 2, (32, 4)),
        ({"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 4}, 2, (24, 3)),
        ({"train_batch_size": 32}, 4, (32, 8)),
        ({"train_micro_batch_size_per_gpu": 5}, 4, (20, 5)),
        ({"gradient_accumulation_steps": 3, "train_batch_size": "auto"}, 2, (48, 8)),
        ({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto"}, 2, (32, 4)),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto"}, 2, (64, 8)),
        (
            {"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4},
            2,
            (32, 4),
        ),
    ],
)
def test_the_batch_triple_is_resolved(given: dict[str, int], ranks: int, batch: tuple[int, int]) -> None:
    training = settings_of(given, ranks).training
    assert (training.global_batch_size, training.micro_batch_size) == batch


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3},
        r"train_batch_size: 32 is not .* = 24; leave one of the three out",
    ),
    ({"train_batch_size": 33}, "33 is no multiple of 2 ranks"),
    ({"train_batch_size": True}, "train_batch_size: expected a number, got True"),
    ({"zero_optimization": {"stage": 4}}, "zero_optimization.stage: 4 is none of"),
    ({"zero_optimization": {"stage": "two"}}, "zero_optimization.stage: expected a number, got 'two'"),
    ({"zero_optimization": {"stages": 2}}, "zero_optimization.stages: not supported; did you mean 'stage'"),
    ({"zero_optimization": 2}, "zero_optimization: expected an object, got 2"),
    ({"zero_optimization": {"offload_param": {"device": "nvme"}}}, "offload_param.device: 'nvme' is not supported"),
    ({"zero_optimization": {"zero_quantized_weights": True}}, "zero_quantized_weights: True is not supported"),
    ({"optimizer": {"type": "Lamb"}}, "optimizer.type: 'Lamb' is not supported; what is: AdamW, Adam, Muon"),
    ({"optimizer": {"type": "Adam", "params": {"adam_w_mode": False}}}, r"optimizer.params.adam_w_mode: False"),
    ({"scheduler": {"type": "OneCycle"}}, "scheduler.type: 'OneCycle' is not supported"),
    ({"fp16": {"enabled": True, "loss_scale": 128}}, "fp16.loss_scale: 128 is not supported; the scale is dynamic"),
    ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "bf16 is enabled as well"),
    ({"activation_checkpointing": {"cpu_checkpointing": True}}, "activation_checkpointing.cpu_checkpointing: True"),
    ({"comet": {"enabled": True}}, "comet: not supported; what is: tensorboard, wandb"),
    ({"flops_profiler": {"enabled": True}}, "flops_profiler: not supported; `--profile"),
    ({"sparse_attention": {"mode": "fixed"}}, "sparse_attention: not supported"),
    ({"data_types": {"grad_accum_dtype": "bf16"}}, "grad_accum_dtype: 'bf16' is not supported"),
    ({"fp16": {"enabled": "auto", "loss_scale": 128}}, "fp16.loss_scale: 128 is not supported"),
    ({"gradient_clipping": 10**400}, "gradient_clipping: expected a number, got 1000"),
    ({"train_batch_size": 1e300}, "train_batch_size: expected a whole number of 64 bits, got 1e"),
    ({"optimizer": {"type": "Adam", "params": {"betas": [True, 0.9]}}}, "betas: expected a number, got True"),
    (
        {"scheduler": {"type": "WarmupLR", "params": {"last_batch_iteration": 9}}},
        "last_batch_iteration: 9 is not supported; a run counts",
    ),
    (
        {"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 1e-3}}},
        "warmup_min_lr: 0.001 is not between 0 and the peak rate 0.0003",
    ),
    ({"gradient_cliping": 1.0}, "gradient_cliping: not supported; did you mean 'gradient_clipping'"),
]


@pytest.mark.parametrize(("document", "problem"), REFUSED)
def test_what_cannot_be_done_is_refused_by_name(document: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        translate(document, RunValues(2), "ds.json")


def test_what_is_switched_off_is_no_matter() -> None:
    off = {"comet": {"enabled": False}, "flops_profiler": {"enabled": False, "profile_step": 1}, "elasticity": None}
    assert translate(off, RunValues()).settings == {}


def test_fp16_brings_deepspeeds_own_window_and_hysteresis() -> None:
    scale = settings_of({"fp16": {"enabled": True, "initial_scale_power": 32}}).loss_scale
    assert (scale.initial_power, scale.window, scale.hysteresis, scale.min_scale) == (32, 1000, 2, 1.0)
    automatic = translate({"fp16": {"enabled": "auto", "initial_scale_power": 12, "hysteresis": "auto"}}, RunValues())
    assert automatic.settings == {"loss_scale": {"initial_power": 12, "window": 1000}}


ON, OFF, AUTO = ({"enabled": state} for state in (True, False, "auto"))


@pytest.mark.parametrize(
    ("document", "precision"),
    [
        ({"bf16": OFF}, "fp32"),
        ({"bf16": OFF, "fp16": {**OFF, "loss_scale": 128}}, "fp32"),
        ({"bf16": OFF, "fp16": AUTO}, None),
        ({"bf16": AUTO, "fp16": OFF}, None),
        ({"bf16": {}, "bfloat16": ON}, None),
        ({"bfloat16": ON}, "bf16"),
        ({"fp16": ON, "bf16": OFF}, "fp16"),
        ({"fp16": {"loss_scale": 128}}, None),
    ],
)
def test_precision_is_fp32_where_all_is_off_and_left_to_the_run_where_something_is_auto(
    document: dict[str, Any], precision: str | None
) -> None:
    training = translate(document, RunValues()).settings.get("training", {})
    assert training.get("precision") == precision


DECAY = {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}


@pytest.mark.parametrize(
    ("kind", "params", "settings"),
    [
        ("WarmupLR", None, {"schedule": {"kind": "constant", "warmup_steps": 1000, "warmup_shape": "log"}}),
        ("WarmupDecayLR", {**DECAY, "warmup_type": "auto"}, {"schedule": {"kind": "linear"}}),
        (
            "WarmupDecayLR",
            {},
            {
                "optimizer": {"lr": 0.001},
                "schedule": {
                    "kind": "linear",
                    "warmup_steps": 1000,
                    "warmup_shape": "log",
                    "warmup_min_ratio": 0.0,
                    "min_lr_ratio": 0.0,
                },
            },
        ),
        (
            "WarmupCosineLR",
            {"warmup_num_steps": 5, "warmup_type": "linear"},
            {
                "schedule": {
                    "kind": "cosine",
                    "warmup_steps": 5,
                    "warmup_shape": "linear",
                    "min_lr_ratio": 0.0001,
                }
            },
        ),
        (
            "WarmupCosineLR",
            {"warmup_num_steps": 5, "warmup_type": "linear", "cos_min_ratio": "auto"},
            {"schedule": {"kind": "cosine", "warmup_steps": 5, "warmup_shape": "linear"}},
        ),
        (
            "WarmupLR",
            {"warmup_min_lr": 0.01, "warmup_num_steps": "auto", "warmup_type": "auto", "last_batch_iteration": -1},
            {"schedule": {"kind": "constant", "warmup_min_ratio": 0.25}},
        ),
    ],
)
def test_what_is_not_there_is_deepspeeds_and_what_is_auto_is_the_runs(
    kind: str, params: dict[str, Any] | None, settings: dict[str, Any]
) -> None:
    document = {"scheduler": {"type": kind, **({} if params is None else {"params": params})}}
    assert translate(document, RunValues(lr=0.04)).settings == settings


@pytest.mark.parametrize(
    "document",
    [
        {"zero_optimization": {"elastic_checkpoint": True}},
        {"zero_optimization": {"max_live_parameters": 1e9}},
        {"zero_optimization": {"stage3_max_live_parameters": 1e9}},
        {"zero_optimization": {"prefetch_bucket_size": 5e7}},
        {"zero_optimization": {"param_persistence_threshold": 1e5}},
        {"zero_optimization": {"max_reuse_distance": 1e9}},
        {"zero_optimization": {"gather_16bit_weights_on_model_save": True}},
        {"steps_per_print": float("inf")},
        {"steps_per_print": 0},
        {"compile": {"enabled": True}},
        {"checkpoint": {"tag_validation": "Warn"}},
        {"aio": {"block_size": 1048576}},
        {"activation_checkpointing": {"partition_activations": False}},
    ],
)
def test_what_has_nothing_to_set_is_named(document: dict[str, Any]) -> None:
    ((section, value),) = document.items()
    inner = isinstance(value, dict) and section in ("zero_optimization", "activation_checkpointing")
    translated = translate(document, RunValues())
    assert translated.settings == {}
    assert translated.hints == (f"{section}.{next(iter(value))}" if inner else section,)


@pytest.mark.parametrize(
    ("section", "mode"),
    [
        ({}, "none"),
        ({"partition_activations": False, "cpu_checkpointing": False, "number_checkpoints": None}, "none"),
        ({"partition_activations": True}, "full"),
        ({"number_checkpoints": 4}, "full"),
    ],
)
def test_checkpointing_of_activations_begins_where_the_section_asks_for_something(
    section: dict[str, Any], mode: str
) -> None:
    assert settings_of({"activation_checkpointing": section}).activation_checkpointing.mode == mode


def test_a_file_may_begin_with_a_mark_and_has_each_key_once(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"gradient_clipping": 0.5}', "utf-8-sig")
    assert read_deepspeed(str(path), RunValues()).settings == {"training": {"max_grad_norm": 0.5}}
    path.write_text('{"zero_optimization": {"stage": 1, "stage": 2}}')
    with pytest.raises(ConfigError, match=r"ds\.json: .*'stage' is there twice"):
        read_deepspeed(str(path), RunValues())


SCHEDULER = {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto", "total_num_steps": 50}}
BESIDE: list[tuple[str, dict[str, Any], str]] = [
    ('training.tokens = "1M"', {"scheduler": SCHEDULER}, r"training.tokens: '1M' in .*toml.* training.steps 50; take"),
    ("schedule.warmup_tokens = 64", {"scheduler": SCHEDULER}, r"warmup_tokens: 64 in .* schedule.warmup_steps 1000"),
    ('training.precision = "bf16"', {"bf16": OFF}, r"training.precision: 'bf16' in .*toml.* training.precision 'fp32'"),
    ("optimizer.eps = 1e-8", {"optimizer": {"params": {"lr": -1}}}, r"^\S*ds\.json: optimizer.lr: .* \(got -1.0\)"),
    ("optimizer.eps = -1", {"optimizer": {"params": {"lr": 1}}}, r"^\S*run\.toml: optimizer.eps: .* \(got -1\)"),
    ("optimizer = 5", {"optimizer": {"params": {"lr": 1}}}, r"^\S*run\.toml: optimizer: expected a section"),
    ("training.steps = 50", {"scheduler": SCHEDULER}, r"^\S*run\.toml and \S*ds\.json: schedule.warmup_steps: 1000 is"),
]


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(("toml", "document", "problem"), BESIDE)
def test_beside_a_file_of_settings_each_is_named(
    tmp_path: Path, toml: str, document: dict[str, Any], problem: str, resume: bool
) -> None:
    config, deepspeed = tmp_path / "run.toml", tmp_path / "ds.json"
    config.write_text(toml)
    deepspeed.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=problem):
        read_settings(str(config), "m.json", tmp_path / "run", resume, (), deepspeed=str(deepspeed))


def test_what_is_auto_is_worked_out_from_the_runs_own_settings(tmp_path: Path) -> None:
    scheduler = {**SCHEDULER, "params": {"warmup_min_lr": 1e-4, "warmup_max_lr": "auto", "warmup_num_steps": 2}}
    document = {"gradient_accumulation_steps": 4, "scheduler": scheduler}
    config, deepspeed = tmp_path / "run.toml", tmp_path / "ds.json"
    config.write_text("training.micro_batch_size = 2\noptimizer.lr = 1e-3\nschedule.min_lr_ratio = 0.1")
    deepspeed.write_text(json.dumps(document))

    def read(*overrides: str) -> RunConfig:
        return read_settings(str(config), "m.json", tmp_path / "run", False, overrides, deepspeed=str(deepspeed))

    assert read().training.global_batch_size == 8
    assert read().schedule.min_lr_ratio == pytest.approx(0.1)
    assert read("training.micro_batch_size=3").training.global_batch_size == 12
    config.write_text("")
    assert read("optimizer.lr=5e-4").schedule.warmup_min_ratio == pytest.approx(0.2)


def test_a_run_takes_it_over(mixture: Path, run_toml: Path, tmp_path: Path, pretrain: Pretrain) -> None:
    document = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "zero_optimization": {"stage": 2, "overlap_comm": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "bf16": {"enabled": True},
    }
    (tmp_path / "ds.json").write_text(json.dumps(document))
    arguments = ("run", "--config", run_toml, "--mixture", mixture, "--deepspeed", tmp_path / "ds.json")
    done = pretrain(*arguments, "--out", tmp_path / "run", check=False)
    assert done.returncode == 2
    assert "optimizer.lr: 0.005 in" in done.stderr

    toml = tmp_path / "run.toml"
    text = run_toml.read_text()
    for old, new in (("lr = 5e-3", ""), ("steps = 12", "steps = 2"), ("= 3\n", "= 1\n"), ("global_batch_size = 8", "")):
        text = text.replace(old, new)
    toml.write_text(text)
    arguments = ("run", "--config", toml, *arguments[3:])
    done = pretrain(*arguments, "--out", tmp_path / "run", ranks=2)
    assert "nothing to set here for zero_optimization.overlap_comm" in done.stderr
    config = load_config(RunConfig, str(tmp_path / "run" / "config.toml"))
    expected = merge(RunConfig().training.model_dump(), {"steps": 2, "zero_stage": 2, "precision": "bf16"})
    assert config.training.model_dump() == {**expected, "global_batch_size": 16, "micro_batch_size": 2}
    assert config.optimizer.lr == 1e-3

    (tmp_path / "ds.json").write_text("{")
    done = pretrain(*arguments, "--out", tmp_path / "other", check=False)
    assert done.returncode == 2
    assert "no DeepSpeed config" in done.stderr
    assert "Traceback" not in done.stderr
