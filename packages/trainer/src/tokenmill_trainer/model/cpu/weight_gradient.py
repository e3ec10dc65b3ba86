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
MOST_ROWS = 256
"""Of a gradient, for one core at a time."""


def takes(of_y_NE: Tensor, x_ND: Tensor) -> bool:
    """Whether `weight_gradient` should have these, which `onednn` takes: whole vectors, on a CPU with AVX-512."""
    return LANES == 16 and len(x_ND) > 0 and all(size % LANES == 0 for size in (*of_y_NE.shape, *x_ND.shape))


@torch.library.custom_op("tokenmill::weight_gradient", mutates_args=())
def weight_gradient(of_y_NE: Tensor, x_ND: Tensor) -> Tensor:
    """(E, D) of_yᵀ · x, in fp32."""
    gradient_ED = x_ND.new_empty(of_y_NE.shape[1], x_ND.shape[1])
    of_y, x, gradient = (array(tensor) for tensor in (without_gaps(of_y_NE), without_gaps(x_ND), gradient_ED))
    on_each_core(lambda rows: _fill(gradient, of_y, x, *rows), _portions(len(gradient_ED)))
    return gradient_ED


@weight_gradient.register_fake
def _(of_y_NE: Tensor, x_ND: Tensor) -> Tensor:
    return x_ND.new_empty(of_y_NE.shape[1], x_ND.shape[1])


def _portions(num_rows: int) -> list[tuple[int, int]]:
    """Rows from begin to end, alike in number, as many portions for each core as for any other."""
    cores = torch.get_num_threads()
    num_portions = cores * -(-num_rows // (cores * MOST_ROWS))
    step = -(-num_rows // (num_portions * LANES)) * LANES
    return [(begin, min(begin + step, num_rows)) for begin in range(0, num_rows, step)]


@compiled
def _fill(gradient: Fp32, of_y: Fp32, x: Fp32, begin: int, end: int) -> None:  # pragma: no cover
    """Fill rows of the gradient (E, D)."""
    num_tokens, size = x.shape
    panels = np.empty(((size + PANEL - 1) // PANEL, STRIP, PANEL), F32)
    block = np.empty((BLOCK, STRIP), F32)
    for token in range(0, num_tokens, STRIP):
        depth = min(STRIP, num_tokens - token)
        for i in range(len(panels)):
            columns = x[token : token + depth, i * PANEL : min((i + 1) * PANEL, size)]
            pack_rows(panels[i], columns, depth, columns.shape[1])
        for row in range(begin, end, BLOCK):
            height = min(BLOCK, end - row)
            transpose(block, of_y[token : token + depth, row : row + height], depth, height)
            for i in range(len(panels)):
                sums = gradient[row : row + height, i * PANEL : min((i + 1) * PANEL, size)]
                if token == 0:
                    set_product(sums, block, panels[i], height, depth, sums.shape[1])
                else:
                    add_product(sums, block, panels[i], height, depth, sums.shape[1])
