"""Many matrices, one product: rows sorted by expert, each group of rows times the matrix of its expert.

No group has a capacity: none is padded, and no token is dropped. Legend: S rows, E experts, I and O sizes in and out.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenmill_trainer.model.linear import linear

KERNEL_ALIGNMENT = 16
"""Bytes that a row of either matrix must be a multiple of for `grouped_mm`."""
KERNEL_TYPE = torch.bfloat16
"""What it computes in on a GPU and under torch.compile; elsewhere it takes more, but is no faster than the loop."""


class GroupedLinear(nn.Module):
    """`num_experts` linear layers without bias in one parameter, (E, O, I)."""

    def __init__(self, num_experts: int, size_in: int, size_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_experts, size_out, size_in))
        nn.init.normal_(self.weight, std=size_in**-0.5)

    def forward(self, x_SI: Tensor, ends_E: Tensor) -> Tensor:
        """(S, I) to (S, O); rows ends[e - 1] to ends[e] are expert e's, which may be none."""
        return grouped_matmul(x_SI, self.weight, ends_E)


def grouped_matmul(x_SI: Tensor, weight_EOI: Tensor, ends_E: Tensor) -> Tensor:
    """(S, O): each row of `x_SI` times the matrix of its group, by one kernel where it takes these sizes.

    `ends_E` is int32 and does not fall; its last value is S.
    """
    if kernel_takes(x_SI, weight_EOI):
        return F.grouped_mm(x_SI, weight_EOI.transpose(1, 2), offs=ends_E)
    return loop_matmul(x_SI, weight_EOI, ends_E)


def kernel_takes(x_SI: Tensor, weight_EOI: Tensor) -> bool:
    """Whether `grouped_mm` can work with these types and row lengths, compiled or not."""
    size_out, size_in = weight_EOI.shape[1:]
    aligned = all(size * x_SI.element_size() % KERNEL_ALIGNMENT == 0 for size in (size_in, size_out))
    return aligned and x_SI.dtype == weight_EOI.dtype == KERNEL_TYPE


def loop_matmul(x_SI: Tensor, weight_EOI: Tensor, ends_E: Tensor) -> Tensor:
    """The same, one expert after the other; takes any size and type, and waits for `ends_E` on a GPU."""
    counts = torch.diff(ends_E, prepend=ends_E.new_zeros(1)).tolist()
    groups = zip(torch.split(x_SI, counts), weight_EOI.unbind(0), strict=True)
    return torch.cat([linear(rows, weight) for rows, weight in groups])
