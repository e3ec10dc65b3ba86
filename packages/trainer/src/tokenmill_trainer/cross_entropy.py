"""Cross-entropy of each token and its gradient, in as few passes over the logits as there can be.

    logits (N, V) ─ a block of rows, in fp32 ─▶ log Z (N,) ─▶ log Z - logit of the label       kept: logits, log Z
    gradient      ◀─ exp(logits - log Z) · g, less g at the label ─ a block of rows

Of probabilities no more than a block exists, and on a CPU that fits into the cache. `F.cross_entropy` writes whole
log-probabilities, their gradient, and that of the logits, and in bf16 the logits themselves once more in fp32.

Legend: N tokens, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

from tokenmill_trainer.first_order import refuse_second_order
from tokenmill_trainer.model.cpu import rows
from tokenmill_trainer.model.cpu.arrays import array, over_rows, takes, without_gaps

IGNORED = -100
"""A label with this value is not counted and gives no gradient."""


def token_losses(logits_NV: Tensor, labels_N: Tensor, overwrite: bool = False) -> tuple[Tensor, Tensor]:
    """(cross-entropy, log Z) of each token in nats, (N,) in fp32 or wider; the first is 0 where a label is IGNORED.

    `overwrite`: the gradient may take the memory of the logits, which nothing else needs.
    """
    losses_N, log_z_N = _TokenLosses.apply(logits_NV, labels_N, overwrite)  # type: ignore[no-untyped-call]
    return losses_N, log_z_N


def at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    """What sums of values of type `dtype` are taken in."""
    return torch.promote_types(dtype, torch.float32)


class _TokenLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, labels_N: Tensor, overwrite: bool) -> tuple[Tensor, Tensor]:
        wide = at_least_fp32(logits_NV.dtype)
        log_z_N = _log_sums(logits_NV) if takes(logits_NV) else torch.logsumexp(logits_NV.to(wide), -1)
        ignored_N = labels_N == IGNORED
        places_N1 = labels_N.masked_fill(ignored_N, 0).unsqueeze(1)
        losses_N = (log_z_N - logits_NV.gather(1, places_N1).squeeze(1)).masked_fill_(ignored_N, 0.0)
        ctx.overwrite = overwrite
        ctx.save_for_backward(logits_NV, log_z_N, places_N1, ignored_N)
        return losses_N, log_z_N

    @staticmethod
    def backward(ctx: Any, of_losses_N: Tensor, of_log_z: Tensor) -> tuple[Tensor, None, None]:
        refuse_second_order()
        logits_NV, log_z_N, places_N1, ignored_N = ctx.saved_tensors
        of_losses_N = of_losses_N.masked_fill(ignored_N, 0.0)
        of_log_z_N = of_losses_N + of_log_z
        if takes(logits_NV):
            if ctx.overwrite is None:
                raise RuntimeError("the logits were overwritten by the gradient that was taken before")
            logits_NV = without_gaps(logits_NV)
            gradient_NV = logits_NV if ctx.overwrite else torch.empty_like(logits_NV)
            ctx.overwrite = None if ctx.overwrite else False
            given = logits_NV, log_z_N, places_N1.flatten(), of_log_z_N, of_losses_N.contiguous(), gradient_NV
            arrays = [array(x) for x in given]
            over_rows(lambda begin, end: rows.loss_gradient(*arrays, begin, end), *logits_NV.shape)
            return gradient_NV, None, None
        gradient_NV = (logits_NV - log_z_N.unsqueeze(1)).exp_().mul_(of_log_z_N.unsqueeze(1))
        return gradient_NV.scatter_add_(1, places_N1, -of_losses_N.unsqueeze(1)).to(logits_NV.dtype), None, None


def _log_sums(logits_NV: Tensor) -> Tensor:
    logits_NV = without_gaps(logits_NV)
    log_z_N = logits_NV.new_empty(len(logits_NV), dtype=torch.float32)
    arrays = array(logits_NV), array(log_z_N)
    over_rows(lambda begin, end: rows.log_sums_of_exp(*arrays, begin, end), *logits_NV.shape)
    return log_z_N
