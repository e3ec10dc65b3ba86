"""Causal attention on CPUs, forward and backward: twice as fast as the kernel of SDPA there.

Each core takes sequences and key/value heads of its own. All is computed in fp32, whatever the inputs are.

Legend: B batch, L length, H query heads, K key/value heads, d head size.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from tokenmill_trainer.model.cpu.arrays import array, is_transformed, without_gaps
from tokenmill_trainer.model.cpu.attention_kernels import attend, attend_backward
from tokenmill_trainer.model.cpu.cores import on_each_core
from tokenmill_trainer.model.cpu.vectors import HAS_PAIRS, LANES

LEAST_LENGTH = 128
TYPES = (torch.float32, torch.bfloat16, torch.float16)


def takes(q_BHLd: Tensor, k_BKLd: Tensor, v_BKLd: Tensor) -> bool:
    """Whether `causal_attention` can, and should, compute attention of each query to all keys before it."""
    all_three = (q_BHLd, k_BKLd, v_BKLd)
    if any(x.ndim != 4 or not x.numel() for x in all_three):
        return False
    if not all(x.device.type == "cpu" and x.dtype in TYPES and not isinstance(x, DTensor) for x in all_three):
        return False
    if torch.is_autocast_enabled("cpu") or is_transformed():
        return False  # SDPA knows how to choose types, and what to do in forward mode
    (batch, heads, length, size), kv_heads = q_BHLd.shape, k_BKLd.shape[1]
    return (
        length >= LEAST_LENGTH
        and q_BHLd.dtype == k_BKLd.dtype == v_BKLd.dtype
        and k_BKLd.shape == (batch, kv_heads, length, size)
        and v_BKLd.shape[:3] == (batch, kv_heads, length)
        and heads % kv_heads == size % 4 == v_BKLd.shape[3] % 4 == 0
    )


def turns(q_BHLd: Tensor, cos: Tensor, sin: Tensor) -> bool:
    """Whether `causal_attention`, which takes these queries, can turn them by the table: by whole vectors."""
    (batch, _, length, size), half = q_BHLd.shape, cos.shape[-1]
    return (
        all(x.dtype == torch.float32 and x.device.type == "cpu" and not x.requires_grad for x in (cos, sin))
        and cos.shape == sin.shape
        and tuple(cos.shape[:-1]) in ((length,), (1, 1, length), (batch, 1, length))
        and half % LANES == 0
        and 2 * half <= size
    )


def causal_attention(
    q_BHLd: Tensor, k_BKLd: Tensor, v_BKLd: Tensor, scale: float, rotation: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """(B, H, L, d of v), in memory (B, L, H, d): the heads of a token side by side, as the output projection reads.

    `rotation`: (cos, sin), each (L, d / 2 or less) or (B, 1, L, d / 2 or less), of queries and keys, if they have none
    yet. `scale` is above 0.
    """
    y_BLHd, _ = _attend(q_BHLd, k_BKLd, v_BKLd, *(rotation or (None, None)), scale)
    y_BHLd: Tensor = y_BLHd.transpose(1, 2)
    return y_BHLd


@torch.library.custom_op("tokenmill::causal_attention", mutates_args=())
def _attend(
    q_BHLd: Tensor, k_BKLd: Tensor, v_BKLd: Tensor, cos: Tensor | None, sin: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    q_BLHd, k_BLKd, v_BLKd = (_plain(x.transpose(1, 2)) for x in (q_BHLd, k_BKLd, v_BKLd))
    y_BLHd, log_sums_BHL = outputs = _outputs(q_BLHd, v_BLKd)
    table = _table(cos, q_BLHd), _table(sin, q_BLHd)
    arrays = [array(x) for x in (q_BLHd, k_BLKd, v_BLKd, *table, *outputs)]
    like = empty_words(q_BLHd)
    on_each_core(lambda pair: attend(*arrays, *pair, scale, like), _pairs(k_BLKd))
    return y_BLHd.to(q_BHLd.dtype), log_sums_BHL


@_attend.register_fake
def _(
    q_BHLd: Tensor, k_BKLd: Tensor, v_BKLd: Tensor, cos: Tensor | None, sin: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    return _outputs(q_BHLd.transpose(1, 2), v_BKLd.transpose(1, 2))


@torch.library.custom_op("tokenmill::causal_attention_backward", mutates_args=())
def _attend_backward(
    of_y_BLHd: Tensor,
    q_BHLd: Tensor,
    k_BKLd: Tensor,
    v_BKLd: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    y_BLHd: Tensor,
    log_sums_BHL: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    inputs_BLHd = [_plain(x.transpose(1, 2)) for x in (q_BHLd, k_BKLd, v_BKLd)]
    gradients_BLHd = [torch.empty_like(x) for x in inputs_BLHd]
    table = _table(cos, inputs_BLHd[0]), _table(sin, inputs_BLHd[0])
    given = _plain(of_y_BLHd), *inputs_BLHd, *table, _plain(y_BLHd), log_sums_BHL
    arrays = [array(x) for x in (*given, *gradients_BLHd)]
    like = empty_words(inputs_BLHd[0])
    on_each_core(lambda pair: attend_backward(*arrays, *pair, scale, like), _pairs(inputs_BLHd[1]))
    of_q, of_k, of_v = (x.to(q_BHLd.dtype) for x in gradients_BLHd)
    return of_q, of_k, of_v


@_attend_backward.register_fake
def _(
    of_y_BLHd: Tensor,
    q_BHLd: Tensor,
    k_BKLd: Tensor,
    v_BKLd: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    y_BLHd: Tensor,
    log_sums_BHL: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return _empty_like(q_BHLd), _empty_like(k_BKLd), _empty_like(v_BKLd)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx: Any, of_y_BLHd: Tensor, of_log_sums_BHL: Tensor) -> tuple[Tensor | None, ...]:
    of_inputs_BLHd = _attend_backward(of_y_BLHd, *ctx.saved_tensors, ctx.scale)
    return *(of_x.transpose(1, 2) for of_x in of_inputs_BLHd), None, None, None


_attend.register_autograd(_gradients, setup_context=_save)


def _plain(x: Tensor) -> Tensor:
    """Without gaps, in bf16 where the CPU multiplies that, else in fp32."""
    return without_gaps(x if x.dtype == torch.bfloat16 and HAS_PAIRS else x.float())


def _table(of_positions: Tensor | None, q_BLHd: Tensor) -> Tensor:
    """(B or 1, L, half), or with half 0."""
    length = q_BLHd.shape[1]
    if of_positions is None:
        return torch.empty(1, length, 0)
    return without_gaps(of_positions).view(-1, length, of_positions.shape[-1])


def empty_words(x: Tensor) -> Any:
    """An empty array of what products of `x` are computed in."""
    return np.empty(0, np.uint32 if x.dtype == torch.bfloat16 else np.float32)


def _outputs(q_BLHd: Tensor, v_BLKd: Tensor) -> tuple[Tensor, Tensor]:
    batch, length, heads, _ = q_BLHd.shape
    y_BLHd = q_BLHd.new_empty(batch, length, heads, v_BLKd.shape[3])
    return y_BLHd, q_BLHd.new_empty(batch, heads, length, dtype=torch.float32)


def _empty_like(x_BHLd: Tensor) -> Tensor:
    """(B, L, H, d)."""
    return torch.empty_like(x_BHLd.transpose(1, 2), memory_format=torch.contiguous_format)


def _pairs(k_BLKd: Tensor) -> list[tuple[int, int]]:
    """Each sequence with each key/value head."""
    batch, _, kv_heads, _ = k_BLKd.shape
    return [(one, kv) for one in range(batch) for kv in range(kv_heads)]
