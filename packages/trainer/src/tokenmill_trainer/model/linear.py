"""The matrix products of a layer, x · weightᵀ + bias, by the fastest library there is for them.

PyTorch hands fp32 products on x86 CPUs to MKL, which keeps to AVX2 on processors that are not Intel's. oneDNN, which
PyTorch carries as well and uses for bf16, has AVX-512 kernels for all: on an AMD EPYC (Zen 5) a core does 230 GFLOP/s
with the one and 103 with the other. So fp32 products on CPUs go to oneDNN; all others are `F.linear`.

Legend: N rows, D size in, E size out.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

HAS_ONEDNN: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


class Linear(nn.Linear):
    """`nn.Linear` by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) to (…, E)."""
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None = None) -> Tensor:
    """(…, D) to (…, E): `F.linear`, but fp32 on CPUs by oneDNN."""
    if not _is_for_onednn(x, weight_ED):
        return F.linear(x, weight_ED, bias_E)
    y: Tensor = onednn_product(x, weight_ED, bias_E)
    return y


def _is_for_onednn(x: Tensor, weight: Tensor) -> bool:
    plain = not isinstance(x, DTensor) and not isinstance(weight, DTensor)
    return HAS_ONEDNN and plain and x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32


@torch.library.custom_op("tokenmill::onednn_product", mutates_args=())
def onednn_product(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
    """The x · weightᵀ + bias of oneDNN, (…, D) to (…, E).

    An operator of its own because PyTorch's has no gradient, and because torch.compile takes that one only with weights
    that never change.
    """
    y_NE = torch.ops.mkldnn._linear_pointwise(x.flatten(0, -2), weight_ED, bias_E, "none", [], "")
    y: Tensor = torch.ops.aten._unsafe_view(y_NE, [*x.shape[:-1], len(weight_ED)])  # FSDP wants no views from a model
    return y


@onednn_product.register_fake
def _(x: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], len(weight_ED))


def _save_factors(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _gradients(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    x, weight_ED = ctx.saved_tensors
    for_x, for_weight, for_bias = ctx.needs_input_grad
    of_y_NE, x_ND = of_y.flatten(0, -2), x.flatten(0, -2)
    return (
        onednn_product(of_y, weight_ED.t(), None) if for_x else None,
        onednn_product(of_y_NE.t(), x_ND.t(), None) if for_weight else None,
        of_y_NE.sum(0) if for_bias else None,
    )


onednn_product.register_autograd(_gradients, setup_context=_save_factors)
