"""Gradients of weights on CPUs: of_yᵀ · x, for which other libraries want one factor transposed in memory first.

    x     ─ STRIP of tokens ─ in panels of PANEL columns ─▶ (STRIP, PANEL), which stays in the level-1 cache
    of_y  ─ STRIP of tokens, BLOCK columns ─ transposed ──▶ (BLOCK, STRIP), which stays in the level-2 cache

So goes a product that is too large for a cache (GotoBLAS, 10.1145/1356052). Each sum is taken over tokens from the
first to the last, on whatever core.

Legend: N tokens, E size out, D size in.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenmill_trainer.model.cpu.arrays import array, without_gaps
from tokenmill_trainer.model.cpu.cores import on_each_core
from tokenmill_trainer.model.cpu.floats import F32, compiled
from tokenmill_trainer.model.cpu.products import add_product, set_product
from tokenmill_trainer.model.cpu.vectors import LANES, pack_rows, transpose

Fp32 = NDArray[np.float32]

STRIP, PANEL, BLOCK = 128, 64, 128
MOST = 256
"""Rows, or columns, of a gradient for one core at a time."""


def takes(of_y_NE: Tensor, x_ND: Tensor) -> bool:
    """Whether `weight_gradient` should have these, which `onednn` takes: whole vectors, on a CPU with AVX-512."""
    return LANES == 16 and len(x_ND) > 0 and all(size % LANES == 0 for size in (*of_y_NE.shape, *x_ND.shape))


@torch.library.custom_op("tokenmill::weight_gradient", mutates_args=())
def weight_gradient(of_y_NE: Tensor, x_ND: Tensor) -> Tensor:
    """(E, D) of_yᵀ · x, in fp32."""
    gradient_ED = x_ND.new_empty(of_y_NE.shape[1], x_ND.shape[1])
    of_y, x, gradient = (array(tensor) for tensor in (without_gaps(of_y_NE), without_gaps(x_ND), gradient_ED))
    on_each_core(lambda part: _fill(gradient, of_y, x, *part), _parts(*gradient_ED.shape))
    return gradient_ED


@weight_gradient.register_fake
def _(of_y_NE: Tensor, x_ND: Tensor) -> Tensor:
    return x_ND.new_empty(of_y_NE.shape[1], x_ND.shape[1])


def _parts(num_rows: int, num_columns: int) -> list[tuple[int, int, int, int]]:
    """Rows and columns, each from begin to end: of the longer side as many parts for each core as for any other."""
    if num_rows >= num_columns:
        return [(*part, 0, num_columns) for part in _divided(num_rows)]
    return [(0, num_rows, *part) for part in _divided(num_columns)]


def _divided(size: int) -> list[tuple[int, int]]:
    cores = torch.get_num_threads()
    num_parts = cores * -(-size // (cores * MOST))
    step = -(-size // (num_parts * LANES)) * LANES
    return [(begin, min(begin + step, size)) for begin in range(0, size, step)]


@compiled
def _fill(
    gradient: Fp32, of_y: Fp32, x: Fp32, row_begin: int, row_end: int, column_begin: int, column_end: int
) -> None:  # pragma: no cover
    """Fill that part of the gradient (E, D)."""
    num_tokens, width = len(x), column_end - column_begin
    panels = np.empty(((width + PANEL - 1) // PANEL, STRIP, PANEL), F32)
    block = np.empty((BLOCK, STRIP), F32)
    for token in range(0, num_tokens, STRIP):
        depth = min(STRIP, num_tokens - token)
        for i in range(len(panels)):
            column = column_begin + i * PANEL
            end = min(column + PANEL, column_end)
            pack_rows(panels[i], x[token : token + depth, column:end], depth, end - column)
        for row in range(row_begin, row_end, BLOCK):
            height = min(BLOCK, row_end - row)
            transpose(block, of_y[token : token + depth, row : row + height], depth, height)
            for i in range(len(panels)):
                column = column_begin + i * PANEL
                end = min(column + PANEL, column_end)
                sums = gradient[row : row + height, column:end]
                if token == 0:
                    set_product(sums, block, panels[i], height, depth, end - column)
                else:
                    add_product(sums, block, panels[i], height, depth, end - column)
