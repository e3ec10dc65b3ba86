"""fp32 matrix products on CPUs by oneDNN.

PyTorch hands fp32 products on x86 CPUs to MKL, which keeps to AVX2 on processors that are not Intel's. oneDNN, which
PyTorch carries as well and uses for bf16, has AVX-512 kernels for all: on an AMD EPYC (Zen 5) a core does 230 GFLOP/s
with the one and 103 with the other.
"""

import torch
from torch import Tensor

HAS_ONEDNN: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def takes(*tensors: Tensor) -> bool:
    """Whether `product` is for tensors of these types."""
    return HAS_ONEDNN and all(tensor.dtype == torch.float32 for tensor in tensors)


def product(x_ND: Tensor, weight_ED: Tensor, bias_E: Tensor | None = None) -> Tensor:
    """The (N, E) of x · weightᵀ + bias, without gradient."""
    if not x_ND.numel():
        return x_ND.new_zeros(len(x_ND), len(weight_ED))
    bias_E = None if bias_E is None else bias_E.contiguous()
    y_NE: Tensor = torch.ops.mkldnn._linear_pointwise(_dense(x_ND), _dense(weight_ED), bias_E, "none", [], "")
    return y_NE


def _dense(matrix: Tensor) -> Tensor:
    """`matrix` without gaps between its rows or columns: one with gaps meets a kernel that is 100 times slower."""
    return matrix if matrix.is_contiguous() or matrix.t().is_contiguous() else matrix.contiguous()
