"""AdamW and the learning rate of each step.

The rate is a pure function of the step number, so a resumed run has it without any state of a scheduler.
"""

import math
from typing import Literal

import torch
from pydantic import ConfigDict, Field, model_validator
from torch import nn

from tokenmill_core.manifest import Frozen


class OptimizerConfig(Frozen):
    """AdamW (arXiv:1711.05101)."""

    model_config = ConfigDict(allow_inf_nan=False)

    lr: float = Field(default=3e-4, gt=0)
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay of the first and second moment, a step."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the second moment."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Decay of matrices, times the rate, a step; vectors such as norm weights do not decay."""

    @model_validator(mode="after")
    def _betas_in_range(self) -> "OptimizerConfig":
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas: {list(self.betas)} must both be at least 0 and below 1, such as [0.9, 0.95]")
        return self


class ScheduleConfig(Frozen):
    """Linear warm-up to the peak rate, then a cosine down to `min_lr_ratio` of it at the last step."""

    model_config = ConfigDict(allow_inf_nan=False)

    kind: Literal["cosine"] = "cosine"
    """Shape of the decay."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps from rate 0 to the peak."""
    min_lr_ratio: float = Field(default=0.1, ge=0, le=1)
    """Rate of the last step, as a share of the peak."""


def learning_rate(step: int, total_steps: int, peak: float, schedule: ScheduleConfig) -> float:
    """Rate of step `step` (1 is the first, `total_steps` the last).

    Warm-up: peak · step / warmup_steps. Then, with progress p from 0 at the end of the warm-up to 1 at the last step:
    peak · (min_lr_ratio + (1 − min_lr_ratio) · (1 + cos πp) / 2).
    """
    if step < schedule.warmup_steps:
        return peak * step / schedule.warmup_steps
    decay_steps = total_steps - schedule.warmup_steps
    progress = min(1.0, (step - schedule.warmup_steps) / decay_steps) if decay_steps > 0 else 0.0
    floor = schedule.min_lr_ratio
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2)


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW over the parameters of `model`: one group that decays (matrices), one that does not (vectors)."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Use `lr` from the next step on."""
    for group in optimizer.param_groups:
        group["lr"] = lr
