"""`--deepspeed ds.json`: what is taken over, what has nothing to set here, and what is refused by name."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenmill_core.config import load_config, merge, validate_config
from tokenmill_core.errors import ConfigError
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.deepspeed import translate
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
    return validate_config(RunConfig, translate(document, world_size).settings, "ds.json")


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
    assert schedule.min_lr_ratio == 0
    assert config.logging.interval == 7
    hints = translate(COMMON, 8).hints
    assert "zero_optimization.overlap_comm" in hints
    assert "zero_optimization.stage" not in hints


def deepspeed_rate(kind: str, shape: str, iteration: int) -> float:
    """The rate of DeepSpeed 0.19.8 at its iteration, written from its documentation: peak 0.01, 10 of 40 steps."""
    import math

    rise = iteration / 10 if shape == "linear" else math.log(iteration + 1) / math.log(10)
    if iteration < 10:
        return 0.001 + 0.009 * rise if kind == "WarmupLR" else 0.01 * rise
    if kind == "WarmupLR":
        return 0.01
    if kind == "WarmupDecayLR":
        return 0.01 * (40 - iteration) / 30
    return 0.01 * (0.0001 + 0.9999 * (1 + math.cos(math.pi * min(1, (iteration - 10 + 1) / 30))) / 2)


@pytest.mark.parametrize("shape", ["linear", "log"])
@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("WarmupLR", {"warmup_min_lr": 0.001, "warmup_max_lr": 0.01}),
        ("WarmupDecayLR", {"warmup_max_lr": 0.01, "total_num_steps": 40}),
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
            assert ours == pytest.approx(deepspeed_rate(kind, shape, iteration), rel=1e-9, abs=1e-15), step


@pytest.mark.parametrize(
    ("given", "ranks", "batch"),
    [
        ({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4}, 2, (32, 4)),
        ({"train_batch_size": 32, "gradient_accumulation_steps": 4}, 2, (32, 4)),
        ({"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 4}, 2, (24, 3)),
        ({"train_batch_size": 32}, 4, (32, 8)),
        ({"train_micro_batch_size_per_gpu": 5}, 4, (20, 5)),
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
    ({"gradient_accumulation_steps": 3}, "gradient_accumulation_steps: 3 says nothing"),
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
    ({"gradient_cliping": 1.0}, "gradient_cliping: not supported; did you mean 'gradient_clipping'"),
]


@pytest.mark.parametrize(("document", "problem"), REFUSED)
def test_what_cannot_be_done_is_refused_by_name(document: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        translate(document, 2, "ds.json")


def test_what_is_switched_off_is_no_matter() -> None:
    off = {"comet": {"enabled": False}, "flops_profiler": {"enabled": False, "profile_step": 1}, "elasticity": None}
    assert translate(off, 1).settings == {}


def test_fp16_brings_deepspeeds_own_window_and_hysteresis() -> None:
    scale = settings_of({"fp16": {"enabled": True, "initial_scale_power": 12}}).loss_scale
    assert (scale.initial_power, scale.window, scale.hysteresis, scale.min_scale) == (12, 1000, 2, 1.0)


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
