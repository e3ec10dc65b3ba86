"""Dynamic loss scaling for fp16, whose smallest numbers are too large for many gradients.

    loss · scale ─ backward ─▶ gradients · scale ─ one norm over all ranks ─┬ finite: ÷ scale, step; in time scale · 2
                                                                            └ not finite: no step, scale ÷ 2

The norm is the same number on all ranks, so they decide alike (Micikevicius et al., arXiv:1710.03740).
"""

import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from tokenmill_core.manifest import Frozen

MAX_SCALE = 2.0**32


class LossScaleConfig(Frozen):
    """How the scale begins and when it changes; only of `training.precision = "fp16"`."""

    model_config = ConfigDict(allow_inf_nan=False)

    initial_power: int = Field(default=16, ge=0, le=32)
    """The first scale is 2 to this power."""
    window: int = Field(default=2000, gt=0)
    """Steps without overflow after which the scale is doubled."""
    hysteresis: int = Field(default=1, gt=0)
    """Overflows that it takes to halve the scale; counted anew when it is doubled."""
    min_scale: float = Field(default=1.0, gt=0)
    """Where gradients overflow at this scale the run ends: then it is not for the scale to help."""


class LossScale:
    """The scale and when to change it. A power of two, so that scaling rounds nothing."""

    def __init__(self, config: LossScaleConfig | None = None) -> None:
        self.config = config or LossScaleConfig()
        self.scale = 2.0**self.config.initial_power
        self.good_steps = 0
        """Since the scale changed, or a gradient overflowed."""
        self.skipped_steps = 0
        """In the whole run."""
        self.patience = self.config.hysteresis
        """Overflows until the scale is halved."""

    def update(self, overflow: bool) -> None:
        """Take note of a step: whether its gradients did not fit."""
        if overflow:
            self.good_steps = 0
            self.skipped_steps += 1
            if self.patience > 1:
                self.patience -= 1
            else:
                self.scale /= 2
            return
        self.good_steps += 1
        if self.good_steps == self.config.window:
            self.scale, self.good_steps = min(MAX_SCALE, self.scale * 2), 0
            self.patience = self.config.hysteresis

    @property
    def exhausted(self) -> bool:
        """Whether gradients overflow although nothing enlarges them: then it is not for the scale to help."""
        return self.scale < self.config.min_scale

    def state(self) -> Tensor:
        """All of it, (4,) fp64, for a checkpoint."""
        return torch.tensor([self.scale, self.good_steps, self.skipped_steps, self.patience], dtype=torch.float64)

    def restore(self, state: Tensor) -> None:
        """Go on from what `state` gave."""
        self.scale = float(state[0])
        self.good_steps, self.skipped_steps, self.patience = (int(value) for value in state[1:])
