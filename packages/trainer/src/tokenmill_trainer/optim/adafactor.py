"""Adafactor: the second moment of a matrix kept as one vector of its rows and one of its columns (arXiv:1804.04235).

The numbers are those of `torch.optim.Adafactor`, which cannot work on sharded parameters. This one can, because it
names the two places where ranks have to add up: column sums, and the root mean squares of weight and update.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate

BETA2_DECAY = -0.8
"""The second moment takes in a share step^−0.8 of each new square."""
MIN_RMS = 1e-3
"""Updates are relative to a weight's root mean square, or to this where that is smaller."""
MAX_UPDATE_RMS = 1.0


class Adafactor(torch.optim.Optimizer):
    """Without first moment, with relative updates: a step moves a weight by about its RMS · min(lr, 1/√step)."""

    def __init__(self, groups: list[dict[str, Any]], *, lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay})
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = _start_state(parameter.detach())

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update the weights; collective where they are sharded."""
        assert closure is None, "the loss is computed before the step"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group["lr"], group["weight_decay"])

    def _update(self, parameter: Tensor, gradient: Tensor, lr: float, weight_decay: float) -> None:
        state, tiny = self.state[parameter], torch.finfo(parameter.dtype).eps
        step = state["step"].add_(1).item()
        size = rms(parameter).clamp_min(MIN_RMS) * min(lr, step**-0.5)
        parameter.mul_(1 - lr * weight_decay)
        update = gradient * _second_moment(state, gradient, step**BETA2_DECAY, tiny).clamp_min(tiny**2).rsqrt()
        parameter.sub_(update * (size / (rms(update) / MAX_UPDATE_RMS).clamp_min(1.0)))


def _start_state(parameter: Tensor) -> dict[str, Tensor]:
    """Step 0 and a second moment of zeros, laid out as that of a gradient will be. Collective where it is sharded."""
    step = torch.zeros(())
    if parameter.ndim < 2:
        return {"step": step, "variance": torch.zeros_like(parameter)}
    return {"step": step, "rows": mean(parameter, -1).zero_(), "columns": mean(parameter, -2).zero_()}


def _second_moment(state: dict[str, Tensor], gradient: Tensor, share: float, tiny: float) -> Tensor:
    """The second moment's estimate, of the gradient's shape, after taking in `share` of it."""
    square = gradient.square()
    if gradient.ndim < 2:
        return state["variance"].lerp_(square, share)
    rows = state["rows"].lerp_(mean(square, -1), share)
    columns = state["columns"].lerp_(mean(square, -2), share)
    return rows * columns / mean(rows, -2).clamp_min(tiny)


def mean(tensor: Tensor, dim: int) -> Tensor:
    """The mean along `dim`, which stays with size 1, complete on every rank that holds a part of it."""
    return _complete(tensor.sum(dim, keepdim=True)) / tensor.shape[dim]


def rms(tensor: Tensor) -> Tensor:
    """The root mean square of all of `tensor`: a plain scalar, the same on every rank."""
    total = tensor.square().sum()
    return ((total.full_tensor() if isinstance(total, DTensor) else total) / tensor.numel()).sqrt()


def _complete(tensor: Tensor) -> Tensor:
    """`tensor` with the sums that are still spread over ranks added up."""
    if not isinstance(tensor, DTensor):
        return tensor
    placements = [Replicate() if placement.is_partial() else placement for placement in tensor.placements]
    return tensor.redistribute(placements=placements)
