"""The training loss: cross-entropy summed over counted tokens; who divides by what is the caller's business.

    features (N, D) ─ a chunk of rows ─ head ─▶ logits (rows, V) ─▶ loss, gradients of features and head ─ next chunk

The logits of all tokens would be the largest tensor of a step: with V = 128,256, a micro-batch of 8,192 tokens has
4.2 GB of them in fp32, and their gradient as much again. So no more than `chunk_tokens` rows exist at a time. Their
gradient is taken while they are there, which needs no second forward; the backward of the step only scales it.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from pydantic import ConfigDict, Field
from torch import Tensor, nn

from tokenmill_core.errors import InputError
from tokenmill_core.manifest import Frozen
from tokenmill_trainer.cross_entropy import IGNORED as IGNORED
from tokenmill_trainer.cross_entropy import at_least_fp32, token_losses
from tokenmill_trainer.first_order import refuse_second_order
from tokenmill_trainer.model import Decoder

Criterion = Callable[[Any, Tensor], Tensor]
"""What a model gives for ids (B, L), and labels (B, L), to a scalar: the loss summed over the counted labels."""

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
    """Sums over the counted tokens of a micro-batch, in nats: fp32 scalars; and what the first is made of."""

    total: Tensor
    """What is minimised: cross-entropy and z-loss."""
    z_loss: Tensor
    """The z-loss alone, weighted; without gradient."""
    by_token: Tensor
    """(N,) cross-entropy of each token, 0 where the label is not counted; without gradient. From the same pass."""


def token_loss_sum(model: nn.Module, inputs: Tensor, labels: Tensor, positions: Tensor | None = None) -> Tensor:
    """Cross-entropy in fp32 nats, summed over the counted labels: (B, L) ids, labels and positions to a scalar."""
    return training_loss_sums(model, inputs, labels, positions, LossConfig()).total


def training_loss_sums(
    model: nn.Module, inputs: Tensor, labels: Tensor, positions: Tensor | None, config: LossConfig
) -> LossSums:
    """Cross-entropy and z-loss over the counted labels: (B, L) ids, labels and positions to sums.

    A model other than `Decoder` has to give logits, (B, L, V), and gives them whole.
    """
    if not isinstance(model, Decoder) or not 0 < config.chunk_tokens < labels.numel():
        logits_BLV = checked_logits(output_of(model, inputs, positions), labels)
        return loss_sums(logits_BLV.flatten(0, 1), labels.flatten(), config.z_loss)

    def reduce(features_BLD: Tensor) -> Tensor:
        features_ND = features_BLD.flatten(0, 1)
        sums = chunked_loss_sums(features_ND, model.head_weight, labels.flatten(), model.logits, config)
        return torch.cat([part.reshape(-1) for part in sums])

    total, z_loss, by_token_N = model(inputs, positions_BL=positions, head=reduce).split((1, 1, labels.numel()))
    return LossSums(total.squeeze(0), z_loss.detach().squeeze(0), by_token_N.detach())


def own_loss_sums(
    model: nn.Module, inputs: Tensor, labels: Tensor, positions: Tensor | None, criterion: Criterion
) -> LossSums:
    """As `training_loss_sums`, with a loss of the user's own, which does not tell what each token lost."""
    total = criterion(output_of(model, inputs, positions), labels)
    return LossSums(total, torch.zeros_like(total, requires_grad=False), total.new_zeros(labels.numel()))


def output_of(model: nn.Module, inputs: Tensor, positions: Tensor | None) -> Any:
    """What `model` makes of ids (B, L); it is told the positions where there are some to tell, or `InputError`."""
    if positions is None:
        return model(inputs)
    if not takes_positions(model):
        raise InputError(
            "model: the data keeps documents apart, but forward has no parameter positions_BL that says where they "
            "begin; add it, or leave out positions and count all labels"
        )
    return model(inputs, positions_BL=positions)


def takes_positions(model: nn.Module) -> bool:
    """Whether the model's `forward` can be told where documents begin: it has a parameter `positions_BL`."""
    return "positions_BL" in inspect.signature(model.forward).parameters


def checked_logits(output: Any, labels: Tensor) -> Tensor:
    """`output`, as long as it is logits (B, L, V) for labels (B, L), or `InputError`."""
    if isinstance(output, Tensor) and output.ndim == 3 and output.shape[:2] == labels.shape:
        return output
    found = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
    raise InputError(
        f"model: for ids of shape {tuple(labels.shape)} it gives {found}, not logits (batch, length, vocabulary); wrap "
        "it so that forward(ids) returns those alone, or give a loss= that takes what it gives"
    )


def loss_sums(logits_NV: Tensor, labels_N: Tensor, z_loss: float, overwrite: bool = False) -> LossSums:
    """The sums from whole logits: the plain form. `overwrite`: their gradient may take their place in memory."""
    by_token_N, log_z_N = token_losses(logits_NV, labels_N, overwrite)
    cross_entropy = by_token_N.sum()
    if not z_loss:
        return LossSums(cross_entropy, torch.zeros_like(cross_entropy), by_token_N.detach())
    penalty = z_loss * log_z_N.masked_fill(labels_N == IGNORED, 0.0).square().sum()
    return LossSums(cross_entropy + penalty, penalty.detach(), by_token_N.detach())


def chunked_loss_sums(
    features_ND: Tensor, weight: Tensor, labels_N: Tensor, head: Head, config: LossConfig
) -> LossSums:
    """The same sums, `chunk_tokens` rows at a time. `weight` is the one parameter that `head` uses, (V, D)."""
    if torch.is_grad_enabled():
        return LossSums(*_ChunkedLoss.apply(features_ND, weight, labels_N, head, config))  # type: ignore[no-untyped-call]
    size = config.chunk_tokens
    chunks = zip(torch.split(features_ND, size), torch.split(labels_N, size), strict=True)
    totals, z_losses, by_token = zip(*(loss_sums(head(x), labels, config.z_loss) for x, labels in chunks), strict=True)
    return LossSums(torch.stack(totals).sum(), torch.stack(z_losses).sum(), torch.cat(by_token))


class _ChunkedLoss(torch.autograd.Function):
    """The sums of all rows; the gradients of features and weight are ready when the forward is."""

    @staticmethod
    def forward(
        ctx: Any, features_ND: Tensor, weight: Tensor, labels_N: Tensor, head: Head, config: LossConfig
    ) -> tuple[Tensor, Tensor, Tensor]:
        by_token_N = features_ND.new_empty(len(features_ND), dtype=at_least_fp32(features_ND.dtype))
        sums = features_ND.new_zeros(2, dtype=at_least_fp32(features_ND.dtype))
        gradient_ND = torch.empty_like(features_ND)
        weight_gradient = None
        for begin in range(0, len(features_ND), config.chunk_tokens):
            rows = slice(begin, begin + config.chunk_tokens)
            features = features_ND[rows].detach().requires_grad_()
            with torch.enable_grad():
                chunk = loss_sums(head(features), labels_N[rows], config.z_loss, overwrite=True)
            wanted = (features, weight) if weight.requires_grad else (features,)
            gradient_ND[rows], *of_weight = torch.autograd.grad(chunk.total, wanted)
            for gradient in of_weight:
                if weight_gradient is None:
                    weight_gradient = gradient.to(at_least_fp32(weight.dtype))
                else:
                    weight_gradient += gradient
            sums += torch.stack((chunk.total, chunk.z_loss)).detach()
            by_token_N[rows] = chunk.by_token
        ctx.gradients = gradient_ND, weight_gradient
        ctx.weight_dtype = weight.dtype
        total, z_loss = sums.unbind()
        ctx.mark_non_differentiable(z_loss, by_token_N)
        return total.clone(), z_loss.clone(), by_token_N

    @staticmethod
    def backward(
        ctx: Any, of_total: Tensor, of_z_loss: Tensor, of_tokens: Tensor
    ) -> tuple[Tensor, Tensor | None, None, None, None]:
        refuse_second_order()
        gradient_ND, weight_gradient = ctx.gradients
        ctx.gradients = None  # scaled in place, so given once
        if weight_gradient is not None:  # the head may be frozen
            weight_gradient = weight_gradient.mul_(of_total).to(ctx.weight_dtype)
        return gradient_ND.mul_(of_total), weight_gradient, None, None, None
