"""What is done to all gradients at once, whichever rank holds them."""

import torch
from torch import nn
from torch.distributed.tensor import DTensor


def global_gradient_norm(model: nn.Module) -> torch.Tensor:
    """The 2-norm of all gradients, whichever rank holds them: one fp64 scalar, the same on all ranks. Collective.

    Rows are summed in fp32 and the rest in fp64: torch's fp32 norm of a million values is off by 2e-5 on a CPU, and by
    how much depends on how they are sharded; fp64 throughout takes 12 times as long. Shards hold whole rows.
    """
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norms = [torch.linalg.vector_norm(_row_norms(gradient), dtype=torch.float64) for gradient in gradients]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def _row_norms(gradient: torch.Tensor) -> torch.Tensor:
    """The norms of its rows; or itself, where it has but one dimension, which shards divide."""
    return gradient if gradient.ndim < 2 else torch.linalg.vector_norm(gradient, dim=-1)


def scale_gradients(model: nn.Module, factor: float) -> None:
    """Multiply all gradients by `factor`."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(factor)
