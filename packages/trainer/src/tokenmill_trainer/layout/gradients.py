"""What is done to all gradients at once, whichever rank holds them."""

import math

import torch
from torch import nn
from torch.distributed.tensor import DTensor


def global_gradient_norm(model: nn.Module) -> torch.Tensor:
    """The 2-norm of all gradients, whichever rank holds them: one fp64 scalar, the same on all ranks. Collective.

    Rows are summed in fp32 and the rest in fp64: torch's fp32 norm of a million values is off by 2e-5 on a CPU, and by
    how much depends on how they are sharded; fp64 throughout takes 12 times as long. Shards hold whole rows.
    """
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = _norm([_row_norms(gradient) for gradient in gradients])
    # Squares of what is very large or small leave fp32's range before the sum does.
    return norm if 0 < norm.item() < math.inf else _norm(gradients)


def _norm(parts: list[torch.Tensor]) -> torch.Tensor:
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(x, dtype=torch.float64) for x in parts]))
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def _row_norms(gradient: torch.Tensor) -> torch.Tensor:
    """The norms of its rows, fp32; or itself, where it has but one dimension, which shards divide."""
    return gradient if gradient.ndim < 2 else torch.linalg.vector_norm(gradient, dim=-1, dtype=torch.float32)


def scale_gradients(model: nn.Module, factor: float) -> None:
    """Multiply all gradients by `factor`."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(factor)
