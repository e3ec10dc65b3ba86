"""Norm, rotation and gate on CPUs, for autograd: of what they read, they keep no copies in fp32.

Legend: N rows, D size of one; B batch, H heads, L length, d head size.
"""

from typing import Any

import torch
from torch import Tensor

from tokenmill_trainer.first_order import refuse_second_order
from tokenmill_trainer.model.cpu import rows
from tokenmill_trainer.model.cpu.arrays import array, array_of_weight, over_rows, pieces, takes, without_gaps
from tokenmill_trainer.model.cpu.cores import on_each_core


def rms_norm(x: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    """X / sqrt(mean(x²) + eps) · weight over the last dimension, in the type of x."""
    y: Tensor = _Norm.apply(x, weight_D, eps)  # type: ignore[no-untyped-call]
    return y


def rotate(x_BHLd: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Heads turned by cos and sin, each (L, d / 2 or less) or (B, 1, L, d / 2 or less); in memory (B, L, H, d)."""
    y_BLHd: Tensor = _Rotation.apply(x_BHLd.transpose(1, 2), cos, sin)  # type: ignore[no-untyped-call]
    return y_BLHd.transpose(1, 2)


def can_rotate(x: Tensor, cos: Tensor, sin: Tensor) -> bool:
    """Whether `rotate` should take these: a table in fp32 with a row for each position, of all sequences or of each."""
    if x.ndim != 4 or not takes(x, cos, sin) or cos.shape != sin.shape or cos.requires_grad or sin.requires_grad:
        return False
    (batch, _, length, size), half = x.shape, cos.shape[-1]
    rows_fit = tuple(cos.shape[:-1]) in ((length,), (1, 1, length), (batch, 1, length))
    return rows_fit and cos.dtype == sin.dtype == torch.float32 and 2 * half <= size


def silu_gate(gate: Tensor, up: Tensor) -> Tensor:
    """Gate · sigmoid(gate) · up, of one shape."""
    y: Tensor = _SiluGate.apply(gate, up)  # type: ignore[no-untyped-call]
    return y


def _rows(x: Tensor) -> Tensor:
    return without_gaps(x).flatten(0, -2)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_D: Tensor, eps: float) -> Tensor:
        x_ND = _rows(x)
        y_ND, inverse_N = torch.empty_like(x_ND), x_ND.new_empty(len(x_ND), dtype=torch.float32)
        given, filled = (array(x_ND), array_of_weight(without_gaps(weight_D)), eps), (array(y_ND), array(inverse_N))
        over_rows(lambda begin, end: rows.norm(*given, *filled, begin, end), *x_ND.shape)
        ctx.save_for_backward(x, weight_D, inverse_N)
        return y_ND.view(x.shape)

    @staticmethod
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor, Tensor, None]:
        refuse_second_order()
        x, weight_D, inverse_N = ctx.saved_tensors
        x_ND = _rows(x)
        of_x_ND, portions = torch.empty_like(x_ND), pieces(*x_ND.shape)
        of_weight_PD = x_ND.new_zeros(len(portions), x_ND.shape[1], dtype=torch.float32)
        given = (
            array(_rows(of_y)),
            array(x_ND),
            array_of_weight(without_gaps(weight_D)),
            array(inverse_N),
            array(of_x_ND),
        )
        sums = array(of_weight_PD)
        on_each_core(lambda one: rows.norm_backward(*given, sums[one], *portions[one]), range(len(portions)))
        return of_x_ND.view(x.shape), of_weight_PD.sum(0).to(weight_D.dtype), None


class _Rotation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BLHd: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(x_BLHd, cos, sin, 1.0)

    @staticmethod
    def backward(ctx: Any, of_y_BLHd: Tensor) -> tuple[Tensor, None, None]:
        refuse_second_order()
        cos, sin = ctx.saved_tensors
        return _turned(of_y_BLHd, cos, sin, -1.0), None, None


def _turned(x_BLHd: Tensor, cos: Tensor, sin: Tensor, direction: float) -> Tensor:
    x_NHd = without_gaps(x_BLHd).flatten(0, 1)
    y_NHd = torch.empty_like(x_NHd)
    given = array(x_NHd), array(_rows(cos)), array(_rows(sin)), direction, array(y_NHd)
    over_rows(lambda begin, end: rows.rotate(*given, begin, end), len(x_NHd), x_NHd.shape[1] * x_NHd.shape[2])
    return y_NHd.view(x_BLHd.shape)


class _SiluGate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        gate_ND, up_ND = _rows(gate), _rows(up)
        y_ND = torch.empty_like(gate_ND)
        arrays = array(gate_ND), array(up_ND), array(y_ND)
        over_rows(lambda begin, end: rows.silu_gate(*arrays, begin, end), *gate_ND.shape)
        return y_ND.view(gate.shape)

    @staticmethod
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor, Tensor]:
        refuse_second_order()
        gate_ND, up_ND = map(_rows, ctx.saved_tensors)
        of_gate_ND, of_up_ND = torch.empty_like(gate_ND), torch.empty_like(up_ND)
        arrays = [array(x) for x in (_rows(of_y), gate_ND, up_ND, of_gate_ND, of_up_ND)]
        over_rows(lambda begin, end: rows.silu_gate_backward(*arrays, begin, end), *gate_ND.shape)
        return of_gate_ND.view(of_y.shape), of_up_ND.view(of_y.shape)
