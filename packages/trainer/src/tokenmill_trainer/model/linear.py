"""The matrix products of a layer, x · weightᵀ + bias: `F.linear`, but on CPUs by whichever library is the fastest.

    kernels of our own (`cpu.matmul`)   many rows in whole vectors, fp32 or bf16
    oneDNN (`cpu.onednn`)               the rest in fp32
    torch                               the rest

A weight may stay fp32 where x is bf16: it is rounded on its way, and its gradient never is.

Legend: N rows, D size in, E size out.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from tokenmill_trainer.first_order import refuse_second_order
from tokenmill_trainer.model.cpu import matmul, onednn
from tokenmill_trainer.model.cpu.arrays import is_transformed


class Linear(nn.Linear):
    """`nn.Linear` by `linear`."""

    at_once = True
    """Whether its operation may be one with those of others; its gradients are, so that they are the same bits."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) to (…, E)."""
        return linear(x, self.weight, self.bias)


class Embedding(nn.Embedding):
    """`nn.Embedding`, whose rows may be rounded as they are looked up."""

    computes_in: torch.dtype | None = None
    """The type of what it gives; none: that of its weight."""

    def forward(self, input: Tensor) -> Tensor:
        """Ids (…) to rows (…, D)."""
        rows = super().forward(input)
        return rows if self.computes_in is None else rows.to(self.computes_in)


def linear(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None = None) -> Tensor:
    """(…, D) to (…, E), in the type of x."""
    if _is_ours(x, weight_ED, bias_E):
        return _apply(x, [weight_ED], bias_E, at_once=True)[0]
    if x.dtype == torch.bfloat16 and weight_ED.dtype == torch.float32:
        weight_ED = weight_ED.to(x.dtype)
    return F.linear(x, weight_ED, bias_E)


def linear_each(x: Tensor, layers: Sequence[nn.Module]) -> Sequence[Tensor]:
    """What each of the layers makes of x, at once where that can be; then its gradients are summed as they come."""
    weights = [layer.weight for layer in layers if type(layer) is Linear and _is_bare(layer)]
    one_type = len({weight.dtype for weight in weights}) == 1
    if len(weights) == len(layers) and one_type and all(_is_ours(x, weight, None) for weight in weights):
        return _apply(x, weights, None, at_once=all(layer.at_once for layer in layers))
    return [layer(x) for layer in layers]


def _is_bare(layer: nn.Linear) -> bool:
    hooks = layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks
    return layer.bias is None and not any(hooks)


def _is_ours(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> bool:
    if x.ndim < 2 or weight_ED.ndim != 2 or not x.shape[-1] == weight_ED.shape[1] > 0:
        return False
    tensors = (x, weight_ED) if bias_E is None else (x, weight_ED, bias_E)
    if any(tensor.device.type != "cpu" or isinstance(tensor, DTensor) for tensor in tensors):
        return False
    if torch.is_autocast_enabled("cpu") or is_transformed():
        return False
    if bias_E is not None and (bias_E.shape != weight_ED.shape[:1] or bias_E.dtype != x.dtype):
        return False
    return onednn.takes(x, weight_ED) or matmul.takes(x.flatten(0, -2), weight_ED)


def _apply(x: Tensor, weights: list[Tensor], bias_E: Tensor | None, *, at_once: bool) -> Sequence[Tensor]:
    """X · weightᵀ + bias for each weight, with gradients."""
    if not torch.compiler.is_compiling():
        ys: Sequence[Tensor] = _Linears.apply(x, bias_E, at_once, *weights)  # type: ignore[no-untyped-call]
        return ys
    groups = [weights] if at_once else [[weight_ED] for weight_ED in weights]
    return [y for group in groups for y in _linear(x, group, bias_E)]


class _Linears(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias_E: Tensor | None, at_once: bool, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, *weights)
        groups = [weights] if at_once else [(weight_ED,) for weight_ED in weights]
        return tuple(y for group in groups for y in _linear(x, group, bias_E))

    @staticmethod
    def backward(ctx: Any, *of_ys: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_order()
        x, *weights = ctx.saved_tensors
        for_x, for_bias, _, *for_weights = ctx.needs_input_grad
        of_x, of_weights, of_bias = _gradients(of_ys, x, weights, (for_x, for_weights, for_bias))
        return of_x, of_bias, None, *of_weights


# Operators of our own because torch.compile takes oneDNN's only with weights that never change. In eager mode a
# Function is the cheaper way to gradients, and makes them one where the operations of the forward have to be several.
@torch.library.custom_op("tokenmill::linear", mutates_args=())
def _linear(x: Tensor, weights: Sequence[Tensor], bias_E: Tensor | None) -> list[Tensor]:
    x_ND = x.flatten(0, -2)
    if all(matmul.takes(x_ND, weight_ED) for weight_ED in weights):
        ys = matmul.products(x_ND, weights, bias_E)
    else:
        ys = [onednn.product(x_ND, weight_ED, bias_E) for weight_ED in weights]
    # FSDP wants no views from a model
    return [torch.ops.aten._unsafe_view(y_NE, [*x.shape[:-1], y_NE.shape[1]]) for y_NE in ys]


@_linear.register_fake
def _(x: Tensor, weights: Sequence[Tensor], bias_E: Tensor | None) -> list[Tensor]:
    return [x.new_empty(*x.shape[:-1], len(weight_ED)) for weight_ED in weights]


@torch.library.custom_op("tokenmill::linear_input_gradient", mutates_args=())
def _input_gradient(of_ys: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """(…, D) Σ of_y · weight."""
    ys_NE, (*shape, _) = [of_y.flatten(0, -2) for of_y in of_ys], of_ys[0].shape
    if all(matmul.takes(of_y_NE, weight_ED.t()) for of_y_NE, weight_ED in zip(ys_NE, weights, strict=True)):
        of_x_ND = matmul.sum_of_products(ys_NE, weights)
    else:
        of_x_ND = onednn.product(ys_NE[0], weights[0].t())
        for of_y_NE, weight_ED in zip(ys_NE[1:], weights[1:], strict=True):
            of_x_ND += onednn.product(of_y_NE, weight_ED.t())
    of_x: Tensor = torch.ops.aten._unsafe_view(of_x_ND, [*shape, of_x_ND.shape[1]])
    return of_x


@_input_gradient.register_fake
def _(of_ys: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    return of_ys[0].new_empty(*of_ys[0].shape[:-1], weights[0].shape[1])


@torch.library.custom_op("tokenmill::linear_weight_gradients", mutates_args=())
def _weight_gradients(of_ys: Sequence[Tensor], x: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """(E, D) of_yᵀ · x for each."""
    ys_NE, x_ND = [of_y.flatten(0, -2) for of_y in of_ys], x.flatten(0, -2)
    if all(matmul.takes(of_y_NE, x_ND.t()) for of_y_NE in ys_NE):
        return matmul.turned_products(ys_NE, x_ND, dtype)
    return [_by_onednn(of_y_NE, x_ND) for of_y_NE in ys_NE]


def _by_onednn(of_y_NE: Tensor, x_ND: Tensor) -> Tensor:
    """It wants one factor transposed: the one, or the other and the result, whichever is less to copy."""
    (num_rows, width), size = of_y_NE.shape, x_ND.shape[1]
    if num_rows * width <= num_rows * size + size * width:
        return onednn.product(of_y_NE.t().contiguous(), x_ND.t())
    return onednn.product(x_ND.t().contiguous(), of_y_NE.t()).t().contiguous()


@_weight_gradients.register_fake
def _(of_ys: Sequence[Tensor], x: Tensor, dtype: torch.dtype) -> list[Tensor]:
    return [x.new_empty(of_y.shape[-1], x.shape[-1], dtype=dtype) for of_y in of_ys]


def _gradients(
    of_ys: Sequence[Tensor], x: Tensor, weights: Sequence[Tensor], wanted: tuple[bool, Sequence[bool], bool]
) -> tuple[Tensor | None, list[Tensor | None], Tensor | None]:
    """Of x, weights and bias, as far as they are wanted."""
    for_x, for_weights, for_bias = wanted
    places = [place for place, is_wanted in enumerate(for_weights) if is_wanted]
    found = _weight_gradients([of_ys[place] for place in places], x, weights[0].dtype) if places else []
    of_weights: list[Tensor | None] = [None] * len(weights)
    for place, gradient_ED in zip(places, found, strict=True):
        of_weights[place] = gradient_ED
    of_x = _input_gradient(of_ys, weights) if for_x else None
    return of_x, of_weights, of_ys[0].flatten(0, -2).sum(0) if for_bias else None


def _save(ctx: Any, inputs: tuple[Tensor, list[Tensor], Tensor | None], output: list[Tensor]) -> None:
    ctx.save_for_backward(inputs[0], *inputs[1])


def _backward(ctx: Any, of_ys: list[Tensor]) -> tuple[Tensor | None, list[Tensor | None], Tensor | None]:
    x, *weights = ctx.saved_tensors
    return _gradients(of_ys, x, weights, ctx.needs_input_grad)


_linear.register_autograd(_backward, setup_context=_save)
