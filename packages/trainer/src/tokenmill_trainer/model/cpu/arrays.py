"""Tensors as compiled functions take them, and rows shared out over cores."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from tokenmill_trainer.model.cpu.cores import on_each_core

PIECE = 1 << 16
"""Elements of a piece of work; whatever the number of cores, so that sums over the rows of pieces are the same."""
WORTH_SHARING = 2 * PIECE
"""Elements from which on waking other cores costs less than it gains."""


def takes(*tensors: Tensor) -> bool:
    """Whether compiled functions should have these: plain fp32 or bf16 on a CPU, and no torch.compile to fuse them."""
    return (
        all(
            type(x) in (Tensor, nn.Parameter) and x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16)
            for x in tensors
        )
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        and not is_transformed()
    )


def is_transformed() -> bool:
    """Whether torch.func, forward-mode differentiation or a tracer is at work, which do not see what Numba computes."""
    if torch.compiler.is_compiling():
        return False
    depth: int = forward_ad._current_level
    transform, tracer = torch._C._functorch.peek_interpreter_stack(), torch._C._get_tracing_state()
    return depth >= 0 or transform is not None or tracer is not None


def without_gaps(x: Tensor) -> Tensor:
    """Contiguous, and without gradient."""
    return x.detach().contiguous()


def array(x: Tensor) -> Any:
    """The same memory for NumPy; bf16 as uint16. It can no longer be let go before x is, as layouts do with weights."""
    plain = x.detach()
    return (plain.view(torch.uint16) if plain.dtype == torch.bfloat16 else plain).numpy()


def words(x: Tensor) -> Any:
    """The same, pairs of bf16 that are neighbours in a row as uint32."""
    plain = x.detach()
    return (plain.view(torch.uint32) if plain.dtype == torch.bfloat16 else plain).numpy()


def array_of_weight(weight: Tensor) -> Any:
    """As `array`, in four times its time, of memory that can be let go."""
    plain = weight.detach()
    return np.from_dlpack(plain.view(torch.uint16) if plain.dtype == torch.bfloat16 else plain)


def pieces(num_rows: int, row_size: int) -> list[tuple[int, int]]:
    """Rows in portions, (begin, end) each."""
    step = max(1, PIECE // max(1, row_size))
    return [(begin, min(begin + step, num_rows)) for begin in range(0, num_rows, step)]


def over_rows(work: Callable[[int, int], None], num_rows: int, row_size: int) -> None:
    """Do `work(begin, end)` for all rows."""
    if num_rows * row_size < WORTH_SHARING:
        work(0, num_rows)
    else:
        on_each_core(lambda piece: work(*piece), pieces(num_rows, row_size))
