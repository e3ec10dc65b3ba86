"""What `cpu_attention` does for one sequence and one key/value head, compiled by Numba: FlashAttention (2205.14135).

    for each query head that shares it, for each BLOCK of queries, for each TILE of keys that one of them sees:
        scores = K · Qᵀ ─ mask ─▶ P = exp(scores - largest so far) ─▶ Yᵀ = Vᵀ · P, over the sum of P

Scores lie transposed, (TILE, BLOCK): a row is one key's with all queries of the block, so that largest values, sums and
products all go along rows, and a core's vector unit takes 16 queries at once. A tile fits into its level-1 cache.
All is computed in fp32. A last block or tile is filled up with zeros.

Legend: L length, d head size (of v: e).
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill_trainer.model.cpu.floats import F32, compiled, exp, narrowed, wide

Fp32 = NDArray[np.float32]
Array = NDArray[Any]
"""fp32, or bf16 in uint16."""

BLOCK, TILE = 128, 32


@compiled
def attend(
    q: Array, k: Array, v: Array, y: Array, log_sums: Fp32, one: int, kv: int, scale: float
) -> None:  # pragma: no cover
    """Fill `y` and `log_sums` for sequence `one` and key/value head `kv`.

    q (B, L, H, d), k (B, L, K, d), v (B, L, K, e), y (B, L, H, e); log_sums (B, H, L): the logarithm of each query's
    sum of exp(scores), which the backward needs.
    """
    groups, length, size, value_size = q.shape[2] // k.shape[2], q.shape[1], q.shape[3], v.shape[3]
    keys, values = (
        _rows(k[one, :, kv], 0, _whole_tiles(length), F32(1)),
        _rows(v[one, :, kv], 0, _whole_tiles(length), F32(1)),
    )
    scores, columns = np.empty((TILE, BLOCK), F32), np.empty((size, BLOCK), F32)
    sums_of_values = np.empty((value_size, BLOCK), F32)
    top, last_top, total = np.empty(BLOCK, F32), np.empty(BLOCK, F32), np.empty(BLOCK, F32)
    for head in range(kv * groups, (kv + 1) * groups):
        for begin in range(0, length, BLOCK):
            end = min(begin + BLOCK, length)
            _columns(columns, q[one, :, head], begin, F32(scale))
            sums_of_values[:] = 0
            top[:] = -np.inf
            total[:] = 0
            for first in range(0, end, TILE):
                _scores(scores, keys, columns, first, begin)
                last_top[:] = top
                for key in range(TILE):
                    for j in range(BLOCK):
                        top[j] = scores[key, j] if scores[key, j] > top[j] else top[j]
                for j in range(BLOCK):
                    last_top[j] = exp(last_top[j] - top[j])
                    total[j] *= last_top[j]
                for key in range(TILE):
                    for j in range(BLOCK):
                        scores[key, j] = exp(scores[key, j] - top[j])
                        total[j] += scores[key, j]
                for row in range(value_size):
                    for j in range(BLOCK):
                        sums_of_values[row, j] *= last_top[j]
                _add_product(sums_of_values, values[first : first + TILE].T, scores, value_size, TILE, BLOCK)
            for j in range(end - begin):
                log_sums[one, head, begin + j] = top[j] + math.log(total[j])
                for row in range(value_size):
                    y[one, begin + j, head, row] = narrowed(sums_of_values[row, j] / total[j], y)


@compiled
def attend_backward(
    of_y: Array,
    q: Array,
    k: Array,
    v: Array,
    y: Array,
    log_sums: Fp32,
    of_q: Array,
    of_k: Array,
    of_v: Array,
    one: int,
    kv: int,
    scale: float,
) -> None:  # pragma: no cover
    """Fill the gradients, each (B, L, heads, size), from that of y and what `attend` has filled."""
    groups, length, size, value_size = q.shape[2] // k.shape[2], q.shape[1], q.shape[3], v.shape[3]
    whole = _whole_tiles(length)
    keys, values = _rows(k[one, :, kv], 0, whole, F32(1)), _rows(v[one, :, kv], 0, whole, F32(1))
    of_keys, of_values = np.zeros((whole, size), F32), np.zeros((whole, value_size), F32)
    p, of_scores = np.empty((TILE, BLOCK), F32), np.empty((TILE, BLOCK), F32)
    columns, of_columns = np.empty((size, BLOCK), F32), np.empty((size, BLOCK), F32)
    of_y_columns = np.empty((value_size, BLOCK), F32)
    log_sum, inner = np.empty(BLOCK, F32), np.empty(BLOCK, F32)
    for head in range(kv * groups, (kv + 1) * groups):
        for begin in range(0, length, BLOCK):
            end = min(begin + BLOCK, length)
            rows, of_y_rows = (
                _rows(q[one, :, head], begin, BLOCK, F32(scale)),
                _rows(of_y[one, :, head], begin, BLOCK, F32(1)),
            )
            _columns(columns, q[one, :, head], begin, F32(scale))
            _columns(of_y_columns, of_y[one, :, head], begin, F32(1))
            log_sum[:] = 0
            inner[:] = 0
            for j in range(end - begin):
                log_sum[j] = log_sums[one, head, begin + j]
                for row in range(value_size):
                    inner[j] += wide(of_y[one, begin + j, head, row]) * wide(y[one, begin + j, head, row])
            of_columns[:] = 0
            for first in range(0, end, TILE):
                _scores(p, keys, columns, first, begin)
                of_scores[:] = 0
                _add_product(of_scores, values[first : first + TILE], of_y_columns, TILE, value_size, BLOCK)
                for key in range(TILE):
                    for j in range(BLOCK):
                        p[key, j] = exp(p[key, j] - log_sum[j])
                        of_scores[key, j] = p[key, j] * (of_scores[key, j] - inner[j])
                _add_product(of_values[first : first + TILE], p, of_y_rows, TILE, BLOCK, value_size)
                _add_product(of_keys[first : first + TILE], of_scores, rows, TILE, BLOCK, size)
                _add_product(of_columns, keys[first : first + TILE].T, of_scores, size, TILE, BLOCK)
            for j in range(end - begin):
                for row in range(size):
                    of_q[one, begin + j, head, row] = narrowed(of_columns[row, j] * F32(scale), of_q)
    _write(of_k[one, :, kv], of_keys)
    _write(of_v[one, :, kv], of_values)


@compiled
def _whole_tiles(length: int) -> int:  # pragma: no cover
    return (length + TILE - 1) // TILE * TILE


@compiled
def _rows(x: Array, begin: int, num_rows: int, scale: Any) -> Fp32:  # pragma: no cover
    """(num_rows, d): rows of x (L, d) from `begin` on, then zeros."""
    rows = np.zeros((num_rows, x.shape[1]), F32)
    for i in range(min(num_rows, len(x) - begin)):
        for j in range(x.shape[1]):
            rows[i, j] = wide(x[begin + i, j]) * scale
    return rows


@compiled
def _write(x: Array, rows: Fp32) -> None:  # pragma: no cover
    """Fill x (L, d) with the first of `rows`."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] = narrowed(rows[i, j], x)


@compiled
def _columns(columns: Fp32, x: Array, begin: int, scale: Any) -> None:  # pragma: no cover
    """Fill (d, BLOCK) with rows of x (L, d) from `begin` on, then zeros."""
    present = min(BLOCK, len(x) - begin)
    columns[:, present:] = 0
    for j in range(present):
        for row in range(x.shape[1]):
            columns[row, j] = wide(x[begin + j, row]) * scale


@compiled
def _scores(scores: Fp32, keys: Fp32, columns: Fp32, first: int, begin: int) -> None:  # pragma: no cover
    """Fill (TILE, BLOCK) for the keys from `first` and the queries from `begin` on; -inf where a key comes later."""
    scores[:] = 0
    _add_product(scores, keys[first : first + TILE], columns, TILE, len(columns), BLOCK)
    for key in range(max(0, begin - first), TILE):
        scores[key, : min(BLOCK, first + key - begin)] = -np.inf


@compiled
def _add_product(sums: Fp32, left: Fp32, right: Fp32, M: int, K: int, N: int) -> None:  # pragma: no cover
    """Sums (M, N) += left (M, K) · right (K, N), where M and K are multiples of 4: 16 products to 8 loads.

    Sizes are given, not asked for: the compiler knows those that are constants, and is half as fast again.
    """
    for m in range(0, M, 4):
        for k in range(0, K, 4):
            a00, a01, a02, a03 = left[m, k], left[m, k + 1], left[m, k + 2], left[m, k + 3]
            a10, a11, a12, a13 = left[m + 1, k], left[m + 1, k + 1], left[m + 1, k + 2], left[m + 1, k + 3]
            a20, a21, a22, a23 = left[m + 2, k], left[m + 2, k + 1], left[m + 2, k + 2], left[m + 2, k + 3]
            a30, a31, a32, a33 = left[m + 3, k], left[m + 3, k + 1], left[m + 3, k + 2], left[m + 3, k + 3]
            for n in range(N):
                b0, b1, b2, b3 = right[k, n], right[k + 1, n], right[k + 2, n], right[k + 3, n]
                sums[m, n] += a00 * b0 + a01 * b1 + a02 * b2 + a03 * b3
                sums[m + 1, n] += a10 * b0 + a11 * b1 + a12 * b2 + a13 * b3
                sums[m + 2, n] += a20 * b0 + a21 * b1 + a22 * b2 + a23 * b3
                sums[m + 3, n] += a30 * b0 + a31 * b1 + a32 * b2 + a33 * b3
