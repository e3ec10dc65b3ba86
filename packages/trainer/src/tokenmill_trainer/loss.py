"""The training loss: cross-entropy summed over counted tokens; who divides by what is the caller's business.

    features (N, D) ─ a chunk of rows ─ head ─▶ logits (rows, V) ─▶ loss, gradients of features and head ─ next chunk

The logits of all tokens would be the largest tensor of a step: with V = 128,256, a micro-batch of 8,192 tokens has
4.2 GB of them in fp32, and their gradient as much again. So no more than `chunk_tokens` rows exist at a time. Their
gradient is taken while they are there, which needs no second forward; the backward of the step only scales it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from pydantic import ConfigDict, Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tokenmill_core.manifest import Frozen
from tokenmill_trainer.cross_entropy import IGNORED as IGNORED
from tokenmill_trainer.cross_entropy import at_least_fp32, token_losses
from tokenmill_trainer.model import Decoder

Head = Callable[[Tensor], Tensor]
"""Features (…, D) to logits (…, V)."""


class LossConfig(Frozen):
    """What is minimised, and in what portions it is computed."""

    model_config = ConfigDict(allow_inf_nan=False)

    z_loss: float = Field(default=0.0, ge=0)
    """Weight of log²Z, where Z is the sum of exp(logits) (PaLM, arXiv:2204.02311): it keeps logits from drifting."""
    chunk_tokens: int = Field(default=1024, ge=0)
    """Most tokens whose logits exist at a time; 0: those of the whole micro-batch. It changes memory, not results."""


class LossSums(NamedTuple):
    """Sums over the counted tokens of a micro-batch, in nats: fp32 scalars."""

    total: Tensor
    """What is minimised: cross-entropy and z-loss."""
    z_loss: Tensor
    """The z-loss alone, weighted; without gradient."""


def token_loss_sum(model: nn.Module, inputs: Tensor, labels: Tensor, positions: Tensor | None = None) -> Tensor:
    """Cross-entropy in fp32 nats, summed over the counted labels: (B, L) ids, labels and positions to a scalar."""
    return training_loss_sums(model, inputs, labels, positions, LossConfig()).total


def training_loss_sums(
    model: nn.Module, inputs: Tensor, labels: Tensor, positions: Tensor | None, config: LossConfig
) -> LossSums:
    """Cross-entropy and z-loss over the counted labels: (B, L) ids, labels and positions to scalars.

    A model other than `Decoder` has to give logits, (B, L, V), and gives them whole.
    """
    if not isinstance(model, Decoder) or not 0 < config.chunk_tokens < labels.numel():
        return loss_sums(model(inputs, positions_BL=positions).flatten(0, 1), labels.flatten(), config.z_loss)

    def reduce(features_BLD: Tensor) -> Tensor:
        features_ND = features_BLD.flatten(0, 1)
        return torch.stack(chunked_loss_sums(features_ND, model.head_weight, labels.flatten(), model.logits, config))

    total, z_loss = model(inputs, positions_BL=positions, head=reduce)
    return LossSums(total, z_loss.detach())


def loss_sums(logits_NV: Tensor, labels_N: Tensor, z_loss: float) -> LossSums:
    """The sums from whole logits: the plain form."""
    by_token_N, log_z_N = token_losses(logits_NV, labels_N)
    cross_entropy = by_token_N.sum()
    if not z_loss:
        return LossSums(cross_entropy, torch.zeros_like(cross_entropy))
    penalty = z_loss * log_z_N.masked_fill(labels_N == IGNORED, 0.0).square().sum()
    return LossSums(cross_entropy + penalty, penalty.detach())


def chunked_loss_sums(
    features_ND: Tensor, weight: Tensor, labels_N: Tensor, head: Head, config: LossConfig
) -> LossSums:
    """The same sums, `chunk_tokens` rows at a time. `weight` is the one parameter that `head` uses, (V, D)."""
    if torch.is_grad_enabled():
        return LossSums(*_ChunkedLoss.apply(features_ND, weight, labels_N, head, config))  # type: ignore[no-untyped-call]
    size = config.chunk_tokens
    chunks = zip(torch.split(features_ND, size), torch.split(labels_N, size), strict=True)
    sums = [torch.stack(loss_sums(head(features), labels, config.z_loss)) for features, labels in chunks]
    return LossSums(*torch.stack(sums).sum(0))


class _ChunkedLoss(torch.autograd.Function):
    """(total, z_loss) of all rows; the gradients of features and weight are ready when the forward is."""

    @staticmethod
    def forward(
        ctx: Any, features_ND: Tensor, weight: Tensor, labels_N: Tensor, head: Head, config: LossConfig
    ) -> tuple[Tensor, Tensor]:
        sums = features_ND.new_zeros(2, dtype=at_least_fp32(features_ND.dtype))
        gradient_ND = torch.empty_like(features_ND)
        weight_gradient = torch.zeros_like(weight, dtype=at_least_fp32(weight.dtype))
        for begin in range(0, len(features_ND), config.chunk_tokens):
            rows = slice(begin, begin + config.chunk_tokens)
            features = features_ND[rows].detach().requires_grad_()
            with torch.enable_grad():
                chunk = loss_sums(head(features), labels_N[rows], config.z_loss)
            gradient_ND[rows], of_weight = torch.autograd.grad(chunk.total, (features, weight))
            weight_gradient += of_weight
            sums += torch.stack(chunk).detach()
        ctx.gradients = gradient_ND, weight_gradient
        ctx.weight_dtype = weight.dtype
        total, z_loss = sums.unbind()
        ctx.mark_non_differentiable(z_loss)
        return total.clone(), z_loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_total: Tensor, of_z_loss: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        gradient_ND, weight_gradient = ctx.gradients
        ctx.gradients = None  # scaled in place, so given once
        return gradient_ND.mul_(of_total), weight_gradient.mul_(of_total).to(ctx.weight_dtype), None, None, None
