"""Matrix products on CPUs with AVX-512: x · wᵀ, x · w and yᵀ · x, of fp32 or bf16, summed in fp32.

    right factor  ─ PANEL columns ─ packed ─▶ (words of K, PANEL): a panel, for the level-1 and level-2 caches
    left factor   ─ BLOCK rows ─ x as it lies, y turned ─▶ times each panel

So go products that are too large for a cache (GotoBLAS, 10.1145/1356052). Each sum is taken over K from the first to
the last, on whatever core. Weights may be fp32 where x is bf16: they are rounded as they are packed.

Legend: M rows of a result, N columns, K numbers that are summed; a word is one fp32 or a pair of bf16 (`vectors`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenmill_trainer.model.cpu.arrays import array, array_of_weight, without_gaps, words
from tokenmill_trainer.model.cpu.cores import on_each_core
from tokenmill_trainer.model.cpu.floats import F32, compiled, narrowed
from tokenmill_trainer.model.cpu.kept_memory import empty
from tokenmill_trainer.model.cpu.products import add_product, set_product, set_product_plus
from tokenmill_trainer.model.cpu.vectors import (
    FEATURES,
    HAS_PAIRS,
    LANES,
    numbers_in,
    pack_columns,
    pack_rows,
    transpose,
)

Fp32 = NDArray[np.float32]
Array = NDArray[Any]
"""fp32, or bf16 in uint16."""
Words = NDArray[Any]
"""fp32, or pairs of bf16 in uint32."""

PANEL, BLOCK = 64, 128
STRIP, LONGEST = 128, 2048
"""Words of K at a time where sums wait in memory; up to LONGEST they need not."""
MOST_COLUMNS, PARTS = 512, 4
"""Of a result, for one core at a time; and parts for a core, so that none waits long for another."""
LEAST_ROWS = 128
"""From which on packing a weight is little work beside the product."""
HAS_FAST_PAIRS = HAS_PAIRS and "amx-bf16" not in FEATURES
"""Whether bf16 is fastest here in pairs. AMX, which oneDNN uses, would be."""


def takes(x_MK: Tensor, w_NK: Tensor) -> bool:
    """Whether this is the place for x · wᵀ and its gradients: many rows, in whole vectors, on a CPU with AVX-512."""
    dtype, of_weight = x_MK.dtype, w_NK.dtype
    fits = dtype == of_weight if dtype == torch.float32 else HAS_FAST_PAIRS and of_weight in (dtype, torch.float32)
    step = LANES * 4 // dtype.itemsize
    return (
        LANES == 16
        and dtype in (torch.float32, torch.bfloat16)
        and fits
        and len(x_MK) >= LEAST_ROWS
        and all(size > 0 and size % step == 0 for size in (*x_MK.shape, *w_NK.shape))
    )


def rounds(w_NK: Tensor) -> bool:
    """Whether `product` takes this w in fp32 where x is bf16 and has many rows."""
    is_here = LANES == 16 and HAS_FAST_PAIRS and w_NK.device.type == "cpu"
    return is_here and w_NK.ndim == 2 and all(size % (2 * LANES) == 0 for size in w_NK.shape)


def products(x_MK: Tensor, weights: Sequence[Tensor], bias_N: Tensor | None = None) -> list[Tensor]:
    """(M, N) x · wᵀ + bias for each w (N, K), in the type of x."""
    x = (words(without_gaps(x_MK)),)
    results, given = [], []
    for w_NK in weights:
        result_MN = empty(len(x_MK), len(w_NK), x_MK.dtype)
        bias = np.zeros(len(w_NK), F32) if bias_N is None else array_of_weight(bias_N.to(torch.float32))
        results.append(result_MN)
        given.append((array(result_MN), x, (array_of_weight(without_gaps(w_NK)),), False, bias))
    on_each_core(lambda one: _fill(*given[one[0]], *one[1]), _parts(_rectangles, results))
    return results


def sum_of_products(factors: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """(M, N) Σ x · w over pairs of x (M, K) and w (K, N), in the type of x."""
    result_MN = factors[0].new_empty(len(factors[0]), weights[0].shape[1])
    xs, ws = (
        tuple(words(without_gaps(x_MK)) for x_MK in factors),
        tuple(array_of_weight(without_gaps(w_KN)) for w_KN in weights),
    )
    given = array(result_MN), xs, ws, True, np.zeros(result_MN.shape[1], F32)
    on_each_core(lambda part: _fill(*given, *part), _rectangles(*result_MN.shape))
    return result_MN


def turned_products(factors: Sequence[Tensor], x_KN: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """(M, N) yᵀ · x for each y (K, M), in fp32 or bf16."""
    x, like = array(without_gaps(x_KN)), np.empty(0, np.uint32 if x_KN.dtype == torch.bfloat16 else F32)
    results, given = [], []
    for y_KM in factors:
        result_MN = x_KN.new_empty(y_KM.shape[1], x_KN.shape[1], dtype=dtype)
        sums_MN = result_MN if dtype == torch.float32 else torch.empty_like(result_MN, dtype=torch.float32)
        results.append(result_MN)
        given.append((array(result_MN), array(sums_MN), array(without_gaps(y_KM)), x, like))
    on_each_core(lambda one: _fill_turned(*given[one[0]], *one[1]), _parts(_slices, results))
    return results


Part = tuple[int, int, int, int]
"""Of a result: rows and columns, each from begin to end."""


def _parts(divide: Callable[[int, int], list[Part]], results: Sequence[Tensor]) -> list[tuple[int, Part]]:
    """Of each result, by its place."""
    return [(place, part) for place, result in enumerate(results) for part in divide(*result.shape)]


def _rectangles(M: int, N: int) -> list[Part]:
    """All rows by as many columns as leave PARTS for each core, since columns have to be packed; else fewer rows."""
    wanted = PARTS * torch.get_num_threads()
    columns = max(1, min(MOST_COLUMNS // PANEL, N // PANEL // wanted)) * PANEL
    num_column_parts = -(-N // columns)
    rows = -(-M // (-(-wanted // num_column_parts) * LANES)) * LANES if num_column_parts < wanted // 2 else M
    return [
        (row, min(row + rows, M), column, min(column + columns, N))
        for column in range(0, N, columns)
        for row in range(0, M, rows)
    ]


def _slices(M: int, N: int) -> list[Part]:
    """Of the longer side as much for each core as for any other, and all of the shorter."""
    step = _portion(max(M, N), MOST_COLUMNS, torch.get_num_threads(), LANES)
    if M >= N:
        return [(row, min(row + step, M), 0, N) for row in range(0, M, step)]
    return [(0, M, column, min(column + step, N)) for column in range(0, N, step)]


def _portion(size: int, most: int, num_cores: int, step: int) -> int:
    """A multiple of `step`, `most` or less, of which `size` gives each core the same number."""
    num_portions = num_cores * -(-size // (num_cores * most))
    return -(-size // (num_portions * step)) * step


@compiled
def _fill(
    y: Array,
    factors: tuple[Words, ...],
    weights: tuple[Array, ...],
    is_turned: bool,
    bias: Fp32,
    row: int,
    row_end: int,
    column: int,
    column_end: int,
) -> None:  # pragma: no cover
    """Fill that part of y (M, N) with bias (N,) + Σ x (M, words of K) times w, (K, N) if turned, or else (N, K)."""
    part, num_words = y[row:row_end, column:column_end], factors[0].shape[1]
    if len(factors) == 1 and num_words <= LONGEST:
        panels = np.empty((_num_panels(part), num_words, PANEL), factors[0].dtype)
        _pack(panels, weights[0], is_turned, column, column_end, 0, num_words)
        for first in range(0, len(part), BLOCK):
            block = factors[0][row + first : min(row + first + BLOCK, row_end)]
            for i in range(len(panels)):
                tile = part[first : first + BLOCK, i * PANEL : (i + 1) * PANEL]
                begin = column + i * PANEL
                set_product_plus(tile, block, panels[i], len(tile), num_words, tile.shape[1], bias[begin:])
        return
    panels, sums = np.empty((_num_panels(part), STRIP, PANEL), factors[0].dtype), np.empty(part.shape, F32)
    sums[:] = bias[column:column_end]
    for x, w in zip(factors, weights):  # noqa: B905  Numba knows no strict=
        for k in range(0, x.shape[1], STRIP):
            end = min(k + STRIP, x.shape[1])
            _pack(panels, w, is_turned, column, column_end, k, end)
            for first in range(0, len(part), BLOCK):
                block = x[row + first : min(row + first + BLOCK, row_end), k:end]
                for i in range(len(panels)):
                    tile = sums[first : first + BLOCK, i * PANEL : (i + 1) * PANEL]
                    add_product(tile, block, panels[i], len(tile), end - k, tile.shape[1])
    _round(part, sums)


@compiled
def _pack(
    panels: Words, w: Array, is_turned: bool, column: int, column_end: int, k: int, k_end: int
) -> None:  # pragma: no cover
    """Fill the panels with words k to k_end of those columns."""
    pair = numbers_in(panels)
    for i in range(len(panels)):
        begin = column + i * PANEL
        end = min(begin + PANEL, column_end)
        if is_turned:
            pack_rows(panels[i], w[k * pair : k_end * pair, begin:end], k_end - k, end - begin)
        else:
            transpose(panels[i], w[begin:end, k * pair : k_end * pair], end - begin, k_end - k)


@compiled
def _fill_turned(
    result: Array, sums: Fp32, y: Array, x: Array, like: Words, row: int, row_end: int, column: int, column_end: int
) -> None:  # pragma: no cover
    """Fill that part of the result (M, N) with yᵀ · x. `sums`, in fp32, may be the result; `like` is an empty array."""
    pair, part = numbers_in(like), sums[row:row_end, column:column_end]
    panels = np.empty((_num_panels(part), STRIP, PANEL), like.dtype)
    columns = np.empty((len(part), STRIP), like.dtype)
    for token in range(0, len(x), STRIP * pair):
        strip_of_x, strip_of_y = x[token : token + STRIP * pair], y[token : token + STRIP * pair]
        num_words = len(strip_of_x) // pair
        _pack(panels, strip_of_x, True, column, column_end, 0, num_words)
        pack_columns(columns, strip_of_y[:, row:row_end], num_words, len(part))
        for first in range(0, len(part), BLOCK):
            block = columns[first : first + BLOCK]
            for i in range(len(panels)):
                tile = part[first : first + BLOCK, i * PANEL : (i + 1) * PANEL]
                if token == 0:
                    set_product(tile, block, panels[i], len(tile), num_words, tile.shape[1])
                else:
                    add_product(tile, block, panels[i], len(tile), num_words, tile.shape[1])
    if result.itemsize < sums.itemsize:
        _round(result[row:row_end, column:column_end], part)


@compiled
def _num_panels(part: Array) -> Any:  # pragma: no cover
    return (part.shape[1] + PANEL - 1) // PANEL


@compiled
def _round(part: Array, sums: Fp32) -> None:  # pragma: no cover
    for i in range(sums.shape[0]):
        for j in range(sums.shape[1]):
            part[i, j] = narrowed(sums[i, j], part)
