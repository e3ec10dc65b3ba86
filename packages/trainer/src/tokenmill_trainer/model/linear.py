"""The matrix products of a layer, x · weightᵀ + bias: `F.linear`, but in fp32 on CPUs by oneDNN.

Legend: N rows, D size in, E size out.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenmill_trainer.model.cpu import onednn, weight_gradient


class Linear(nn.Linear):
    """`nn.Linear` by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) to (…, E)."""
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None = None) -> Tensor:
    """(…, D) to (…, E), by whichever library is the faster."""
    fits = x.ndim > 1 and weight_ED.ndim == 2 and x.shape[-1] == weight_ED.shape[1] > 0
    fits = fits and (bias_E is None or bias_E.shape == weight_ED.shape[:1])
    if not fits or not onednn.takes(x, weight_ED, *(() if bias_E is None else (bias_E,))):
        return F.linear(x, weight_ED, bias_E)
    y: Tensor = _linear(x, weight_ED, bias_E)
    return y


# An operator of our own because PyTorch's has no gradient, and because torch.compile takes that one only with weights
# that never change.
@torch.library.custom_op("tokenmill::linear", mutates_args=())
def _linear(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
    y_NE = onednn.product(x.flatten(0, -2), weight_ED, bias_E)
    y: Tensor = torch.ops.aten._unsafe_view(y_NE, [*x.shape[:-1], len(weight_ED)])  # FSDP wants no views from a model
    return y


@_linear.register_fake
def _(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], len(weight_ED))


def _save_factors(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _gradients(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    x, weight_ED = ctx.saved_tensors
    for_x, for_weight, for_bias = ctx.needs_input_grad
    of_y_NE, x_ND = of_y.flatten(0, -2), x.flatten(0, -2)
    return (
        _linear(of_y, weight_ED.t(), None) if for_x else None,
        _weight_gradient(of_y_NE, x_ND) if for_weight else None,
        of_y_NE.sum(0) if for_bias else None,
    )


def _weight_gradient(of_y_NE: Tensor, x_ND: Tensor) -> Tensor:
    """(E, D). oneDNN wants one factor transposed: the one, or the other and the result, whichever is less to copy."""
    (num_rows, width), size = of_y_NE.shape, x_ND.shape[1]
    gradient_ED: Tensor
    if weight_gradient.takes(of_y_NE, x_ND):
        gradient_ED = weight_gradient.weight_gradient(of_y_NE, x_ND)
    elif num_rows * width <= num_rows * size + size * width:
        gradient_ED = _linear(of_y_NE.t().contiguous(), x_ND.t(), None)
    else:
        gradient_ED = _linear(x_ND.t().contiguous(), of_y_NE.t(), None).t().contiguous()
    return gradient_ED


_linear.register_autograd(_gradients, setup_context=_save_factors)
