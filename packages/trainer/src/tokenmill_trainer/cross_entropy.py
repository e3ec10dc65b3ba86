"""Cross-entropy of each token and its gradient, in as few passes over the logits as there can be.

    logits (N, V) ─ a block of rows, in fp32 ─▶ log Z (N,) ─▶ log Z - logit of the label       kept: logits, log Z
    gradient      ◀─ exp(logits - log Z) · g, less g at the label ─ a block of rows

Of probabilities no more than a block exists, and on a CPU that fits into the cache. `F.cross_entropy` writes whole
log-probabilities, their gradient, and that of the logits, and in bf16 the logits themselves once more in fp32.

Legend: N tokens, V vocabulary.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

IGNORED = -100
"""A label with this value is not counted and gives no gradient."""
BLOCK_ON_CPU = 1 << 19
"""Logits at a time: 2 MiB in fp32, the level-2 cache of two cores."""


def token_losses(logits_NV: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """(cross-entropy, log Z) of each token in nats, (N,) in fp32 or wider; the first is 0 where a label is IGNORED."""
    losses_N, log_z_N = _TokenLosses.apply(logits_NV, labels_N)  # type: ignore[no-untyped-call]
    return losses_N, log_z_N


def at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    """What sums of values of type `dtype` are taken in."""
    return torch.promote_types(dtype, torch.float32)


def refuse_second_order() -> None:
    """Called in a backward: gradients of gradients would be wrong, and `once_differentiable` does not always say so."""
    if torch.is_grad_enabled():
        raise RuntimeError("this loss is differentiated once; take the gradient without create_graph=True")


def _blocks(logits_NV: Tensor) -> Iterator[slice]:
    num_rows, size = logits_NV.shape
    step = num_rows if logits_NV.is_cuda else max(1, BLOCK_ON_CPU // size)
    return (slice(begin, begin + step) for begin in range(0, num_rows, max(1, step)))


class _TokenLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
        wide = at_least_fp32(logits_NV.dtype)
        log_z_N = logits_NV.new_empty(len(logits_NV), dtype=wide)
        for rows in _blocks(logits_NV):
            torch.logsumexp(logits_NV[rows].to(wide), -1, out=log_z_N[rows])
        ignored_N = labels_N == IGNORED
        places_N1 = labels_N.masked_fill(ignored_N, 0).unsqueeze(1)
        losses_N = (log_z_N - logits_NV.gather(1, places_N1).squeeze(1)).masked_fill_(ignored_N, 0.0)
        ctx.save_for_backward(logits_NV, log_z_N, places_N1, ignored_N)
        return losses_N, log_z_N

    @staticmethod
    def backward(ctx: Any, of_losses_N: Tensor, of_log_z_N: Tensor) -> tuple[Tensor, None]:
        refuse_second_order()
        logits_NV, log_z_N, places_N1, ignored_N = ctx.saved_tensors
        of_losses_N = of_losses_N.masked_fill(ignored_N, 0.0)
        of_probability_N1 = (of_losses_N + of_log_z_N).unsqueeze(1)
        gradient_NV = torch.empty_like(logits_NV)
        for rows in _blocks(logits_NV):
            block = (logits_NV[rows] - log_z_N[rows].unsqueeze(1)).exp_().mul_(of_probability_N1[rows])
            block.scatter_add_(1, places_N1[rows], -of_losses_N[rows].unsqueeze(1))
            gradient_NV[rows] = block
        return gradient_NV, None
