"""Dynamic loss scaling for fp16, whose smallest numbers are too large for many gradients.

    loss · scale ─ backward ─▶ gradients · scale ─ one norm over all ranks ─┬ finite: ÷ scale, step; in time scale · 2
                                                                            └ not finite: no step, scale ÷ 2

The norm is the same number on all ranks, so they decide alike (Micikevicius et al., arXiv:1710.03740).
"""

import torch
from torch import Tensor

INITIAL_SCALE = 2.0**16
GROWTH_INTERVAL = 2000
"""Steps without overflow after which the scale is doubled."""
MIN_SCALE = 1.0
MAX_SCALE = 2.0**24


class LossScale:
    """The scale and when to change it. A power of two, so that scaling rounds nothing."""

    def __init__(self) -> None:
        self.scale = INITIAL_SCALE
        self.good_steps = 0
        """Since the scale changed."""
        self.skipped_steps = 0
        """In the whole run."""

    def update(self, overflow: bool) -> None:
        """Take note of a step: whether its gradients did not fit."""
        if overflow:
            self.scale, self.good_steps = self.scale / 2, 0
            self.skipped_steps += 1
            return
        self.good_steps += 1
        if self.good_steps == GROWTH_INTERVAL:
            self.scale, self.good_steps = min(MAX_SCALE, self.scale * 2), 0

    @property
    def exhausted(self) -> bool:
        """Whether gradients overflow although nothing enlarges them: then it is not for the scale to help."""
        return self.scale < MIN_SCALE

    def state(self) -> Tensor:
        """All of it, (3,) fp64, for a checkpoint."""
        return torch.tensor([self.scale, self.good_steps, self.skipped_steps], dtype=torch.float64)

    def restore(self, state: Tensor) -> None:
        """Go on from what `state` gave."""
        scale, good_steps, skipped_steps = state.tolist()
        self.scale, self.good_steps, self.skipped_steps = scale, int(good_steps), int(skipped_steps)
