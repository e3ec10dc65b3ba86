"""What `cpu_attention` does for one sequence and one key/value head, compiled by Numba: FlashAttention (2205.14135).

    for each query head that shares it, for each BLOCK of queries, for each TILE of keys that one of them sees:
        scores = K · Qᵀ ─ mask ─▶ P = exp(scores - largest so far) ─▶ Yᵀ = Vᵀ · P, over the sum of P

Scores lie transposed, (TILE, BLOCK): a row is one key's with all queries of the block, so that largest values, sums and
products all go along rows, and a core's vector unit takes 16 queries at once. A tile fits into its level-1 cache.
Scores, exponentials and sums are fp32. Products take words (`vectors`): of two bf16 where q is bf16 and the CPU
multiplies those, else of one fp32; `like` is an empty array of such words. A last block or tile is filled up with
zeros.

Legend: L length, d head size (of v: e).
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill_trainer.model.cpu.floats import F32, compiled, exp, narrowed, wide
from tokenmill_trainer.model.cpu.products import add_product, scale_and_add_product, set_product
from tokenmill_trainer.model.cpu.vectors import LANES, numbers_in, transpose, word

Fp32 = NDArray[np.float32]
Array = NDArray[Any]
"""fp32, or bf16 in uint16."""
Words = NDArray[Any]
"""fp32, or pairs of bf16 in uint32."""

BLOCK, TILE = 128, 32


@compiled
def attend(
    q: Array, k: Array, v: Array, y: Array, log_sums: Fp32, one: int, kv: int, scale: float, like: Words
) -> None:  # pragma: no cover
    """Fill `y` and `log_sums` for sequence `one` and key/value head `kv`.

    q (B, L, H, d), k (B, L, K, d), v (B, L, K, e), y (B, L, H, e); log_sums (B, H, L): the logarithm of each query's
    sum of exp(scores), which the backward needs.
    """
    groups, length, size, value_size = q.shape[2] // k.shape[2], q.shape[1], q.shape[3], v.shape[3]
    pair = numbers_in(like)
    keys = _rows(k, one, kv, 0, length, like)
    values = _transposed(_pairs_of_rows(v, one, kv, 0, length, like))
    p = np.empty((TILE // pair, BLOCK), like.dtype)
    scores, sums_of_values = np.empty((TILE, BLOCK), F32), np.empty((_whole_vectors(value_size), BLOCK), F32)
    top, last_top, total = np.empty(BLOCK, F32), np.empty(BLOCK, F32), np.empty(BLOCK, F32)
    shift = np.empty(BLOCK, F32)
    for head in range(kv * groups, (kv + 1) * groups):
        for begin in range(0, length, BLOCK):
            end = min(begin + BLOCK, length)
            columns = _transposed(_rows(q, one, head, begin, end, like))
            sums_of_values[:] = 0
            top[:] = -np.inf
            total[:] = 0
            for first in range(0, end, TILE):
                few = _first_that_sees(first, begin)
                seeing = BLOCK - few
                tile = keys[first : first + TILE]
                set_product(scores[:, few:], tile, columns[:, few:], TILE, size // pair, seeing)
                last_top[:] = top
                for key in range(TILE):
                    seen = _first_that_sees(first + key, begin)
                    scores[key, few:seen] = -np.inf
                    for j in range(seen, BLOCK):
                        scores[key, j] *= F32(scale)
                        top[j] = scores[key, j] if scores[key, j] > top[j] else top[j]
                for j in range(few, BLOCK):
                    shift[j] = top[j] if top[j] > -np.inf else F32(0)
                    last_top[j] = exp(last_top[j] - shift[j])
                    total[j] *= last_top[j]
                for row in range(TILE // pair):
                    for j in range(few, BLOCK):
                        p_of_one = exp(scores[row * pair, j] - shift[j])
                        p_of_other = exp(scores[row * pair + pair - 1, j] - shift[j])
                        total[j] += p_of_one if pair == 1 else p_of_one + p_of_other
                        p[row, j] = word(p_of_one, p_of_other, like)
                turned = values[:, first // pair : (first + TILE) // pair]
                sums = sums_of_values[:, few:]
                scale_and_add_product(sums, turned, p[:, few:], value_size, TILE // pair, seeing, last_top[few:])
            for j in range(end - begin):
                log_sums[one, head, begin + j] = top[j] + math.log(total[j])
            for row in range(value_size):
                for j in range(BLOCK):
                    sums_of_values[row, j] /= total[j]
            _write(y, one, head, begin, end, _transposed(sums_of_values), F32(1))


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
    like: Words,
) -> None:  # pragma: no cover
    """Fill the gradients, each (B, L, heads, size), from that of y and what `attend` has filled."""
    groups, length, size, value_size = q.shape[2] // k.shape[2], q.shape[1], q.shape[3], v.shape[3]
    pair = numbers_in(like)
    keys, turned_keys = _rows(k, one, kv, 0, length, like), _transposed(_pairs_of_rows(k, one, kv, 0, length, like))
    values = _rows(v, one, kv, 0, length, like)
    whole, wide_size, wide_value_size = len(keys), _whole_vectors(size), _whole_vectors(value_size)
    of_keys, of_values = np.zeros((whole, wide_size), F32), np.zeros((whole, wide_value_size), F32)
    p, of_scores = np.empty((TILE, BLOCK), F32), np.empty((TILE, BLOCK), F32)
    p_rows, of_s_rows = np.empty((TILE, BLOCK // pair), like.dtype), np.empty((TILE, BLOCK // pair), like.dtype)
    of_s_columns = np.empty((TILE // pair, BLOCK), like.dtype)
    of_columns = np.empty((wide_size, BLOCK), F32)
    log_sum, inner = np.empty(BLOCK, F32), np.empty(BLOCK, F32)
    for head in range(kv * groups, (kv + 1) * groups):
        for begin in range(0, length, BLOCK):
            end = min(begin + BLOCK, length)
            columns = _transposed(_rows(q, one, head, begin, end, like))
            of_y_columns = _transposed(_rows(of_y, one, head, begin, end, like))
            rows = _pairs_of_rows(q, one, head, begin, end, like)
            of_y_rows = _pairs_of_rows(of_y, one, head, begin, end, like)
            log_sum[:] = 0
            inner[:] = 0
            for j in range(end - begin):
                log_sum[j] = log_sums[one, head, begin + j]
                for row in range(value_size):
                    inner[j] += wide(of_y[one, begin + j, head, row]) * wide(y[one, begin + j, head, row])
            of_columns[:] = 0
            for first in range(0, end, TILE):
                few = _first_that_sees(first, begin)
                seeing, words = BLOCK - few, (BLOCK - few) // pair
                tile, of_tile = keys[first : first + TILE], values[first : first + TILE]
                set_product(p[:, few:], tile, columns[:, few:], TILE, size // pair, seeing)
                set_product(of_scores[:, few:], of_tile, of_y_columns[:, few:], TILE, value_size // pair, seeing)
                for key in range(TILE):
                    seen = _first_that_sees(first + key, begin)
                    p[key, few:seen] = 0
                    of_scores[key, few:seen] = 0
                    for j in range(seen, BLOCK):
                        p[key, j] = exp(p[key, j] * F32(scale) - log_sum[j])
                        of_scores[key, j] = p[key, j] * (of_scores[key, j] - inner[j])
                for key in range(TILE):
                    for j in range(few // pair, BLOCK // pair):
                        p_rows[key, j] = word(p[key, j * pair], p[key, j * pair + pair - 1], like)
                        of_s_rows[key, j] = word(of_scores[key, j * pair], of_scores[key, j * pair + pair - 1], like)
                for row in range(TILE // pair):
                    for j in range(few, BLOCK):
                        of_s_columns[row, j] = word(of_scores[row * pair, j], of_scores[row * pair + pair - 1, j], like)
                sums = of_values[first : first + TILE]
                add_product(sums, p_rows[:, few // pair :], of_y_rows[few // pair :], TILE, words, wide_value_size)
                sums = of_keys[first : first + TILE]
                add_product(sums, of_s_rows[:, few // pair :], rows[few // pair :], TILE, words, wide_size)
                turned = turned_keys[:, first // pair : (first + TILE) // pair]
                add_product(of_columns[:, few:], turned, of_s_columns[:, few:], size, TILE // pair, seeing)
            _write(of_q, one, head, begin, end, _transposed(of_columns), F32(scale))
    _write(of_k, one, kv, 0, length, of_keys, F32(scale))
    _write(of_v, one, kv, 0, length, of_values, F32(1))


@compiled
def _whole_vectors(size: int) -> int:  # pragma: no cover
    return (size + LANES - 1) // LANES * LANES


@compiled
def _first_that_sees(key: int, begin: int) -> int:  # pragma: no cover
    """Which query of the block from `begin` on is the first to see the key: BLOCK where none is."""
    return min(max(0, key - begin), BLOCK)


@compiled
def _rows(x: Array, one: int, head: int, begin: int, end: int, like: Words) -> Words:  # pragma: no cover
    """Those rows of x (B, L, heads, d) in words of neighbours in a row; zeros up to whole blocks and vectors."""
    pair = numbers_in(like)
    words = np.zeros((_whole_blocks(end - begin), _whole_vectors(x.shape[3] // pair)), like.dtype)
    for i in range(end - begin):
        for j in range(x.shape[3] // pair):
            one_x, other_x = x[one, begin + i, head, j * pair], x[one, begin + i, head, j * pair + pair - 1]
            words[i, j] = word(wide(one_x), wide(other_x), like)
    return words


@compiled
def _pairs_of_rows(x: Array, one: int, head: int, begin: int, end: int, like: Words) -> Words:  # pragma: no cover
    """The same in words of neighbours in a column."""
    pair = numbers_in(like)
    words = np.zeros((_whole_blocks(end - begin) // pair, _whole_vectors(x.shape[3])), like.dtype)
    for i in range((end - begin + pair - 1) // pair):
        row = begin + i * pair
        has_other = F32(row + pair <= end)
        for j in range(x.shape[3]):
            one_x, other_x = x[one, row, head, j], x[one, min(row + pair, end) - 1, head, j]
            words[i, j] = word(wide(one_x), wide(other_x) * has_other, like)
    return words


@compiled
def _whole_blocks(length: int) -> int:  # pragma: no cover
    return (length + BLOCK - 1) // BLOCK * BLOCK


@compiled
def _transposed(x: Words) -> Words:  # pragma: no cover
    """(N, M) of x (M, N), where both are multiples of LANES."""
    y = np.empty((x.shape[1], x.shape[0]), x.dtype)
    transpose(y, x, x.shape[0], x.shape[1])
    return y


@compiled
def _write(x: Array, one: int, head: int, begin: int, end: int, rows: Fp32, scale: Any) -> None:  # pragma: no cover
    """Fill those rows of x (B, L, heads, d) with `rows`, times `scale`."""
    for i in range(end - begin):
        for j in range(x.shape[3]):
            x[one, begin + i, head, j] = narrowed(rows[i, j] * scale, x)
