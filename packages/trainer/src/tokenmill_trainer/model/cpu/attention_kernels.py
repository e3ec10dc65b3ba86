"""What `attention` does for one sequence and one key/value head, compiled by Numba: FlashAttention (2205.14135).

    for each query head that shares it, for each BLOCK of queries, for each BLOCK of keys that one of them sees:
        scores = K · Qᵀ ─ mask ─▶ P = 2^(scores - largest so far) ─▶ Yᵀ = Vᵀ · P, over the sum of P

Scores lie transposed: a row is one key's with all queries of the block, so that largest values, sums and products all
go along rows, and a core's vector unit takes 16 queries at once. They fit into its level-1 cache, and what is computed
of them takes their place. The block that the diagonal crosses is taken in halves: half its queries see none of one.

Scores, powers and sums are fp32. Products take words (`vectors`): of two bf16 where q is bf16, else of one fp32; `like`
is an empty array of such words. A last block is filled up with zeros.

Queries and keys are turned by their positions as they are read, and their gradients turned back as they are written, so
that no turned copies lie in memory.

Legend: L length, d head size (of v: e).
"""

import math

import numpy as np

from tokenmill_trainer.model.cpu.attention_rows import (
    BLOCK,
    Array,
    Fp32,
    Words,
    pairs_of_rows,
    rows,
    transposed,
    turned_rows,
    whole_vectors,
    write,
    write_turned_back,
)
from tokenmill_trainer.model.cpu.attention_tiles import inner_products, soften, soften_backward
from tokenmill_trainer.model.cpu.floats import F32, compiled
from tokenmill_trainer.model.cpu.products import add_product, scale_and_add_product, set_product
from tokenmill_trainer.model.cpu.vectors import numbers_in

LOG2_E = math.log2(math.e)
"""Scores times this: powers of 2 are cheaper than those of e."""


@compiled
def attend(
    q: Array,
    k: Array,
    v: Array,
    cos: Fp32,
    sin: Fp32,
    y: Array,
    log_sums: Fp32,
    one: int,
    kv: int,
    scale: float,
    like: Words,
) -> None:  # pragma: no cover
    """Fill `y` and `log_sums` for sequence `one` and key/value head `kv`.

    q (B, L, H, d), k (B, L, K, d), v (B, L, K, e), y (B, L, H, e); cos, sin (B or 1, L, half of what is turned of d, or
    0); log_sums (B, H, L): the base-2 logarithm of each query's sum of exp(scores), which the backward needs.
    """
    groups, length, size, value_size = q.shape[2] // k.shape[2], q.shape[1], q.shape[3], v.shape[3]
    pair, binary_scale = numbers_in(like), F32(scale * LOG2_E)
    keys = turned_rows(k, one, kv, 0, length, like, cos, sin)
    values = transposed(pairs_of_rows(rows(v, one, kv, 0, length, like), v))
    scores, sums_of_values = np.empty((BLOCK, BLOCK), F32), np.empty((whole_vectors(value_size), BLOCK), F32)
    p = scores.view(like.dtype)
    top, total, factors = np.empty(BLOCK, F32), np.empty(BLOCK, F32), np.empty(BLOCK, F32)
    for head in range(kv * groups, (kv + 1) * groups):
        for begin in range(0, length, BLOCK):
            end = min(begin + BLOCK, length)
            columns = transposed(turned_rows(q, one, head, begin, end, like, cos, sin))
            sums_of_values[:] = 0
            top[:] = -np.inf
            total[:] = 0
            first = last = 0
            while last < end:
                first, last = last, _end_of_tile(last, begin)
                few, num_keys = max(0, first - begin), last - first
                seeing, tile = BLOCK - few, scores[:num_keys]
                set_product(tile[:, few:], keys[first:last], columns[:, few:], num_keys, size // pair, seeing)
                if last > begin:
                    _hide_unseen(tile, few, -np.inf)
                soften(p, tile, top, total, factors, few, binary_scale)
                some_values, sums = values[:, first // pair : last // pair], sums_of_values[:, few:]
                scale_and_add_product(
                    sums, some_values, p[:, few:], value_size, num_keys // pair, seeing, factors[few:]
                )
            for j in range(end - begin):
                log_sums[one, head, begin + j] = top[j] * binary_scale + math.log2(total[j])
            for j in range(BLOCK):
                factors[j] = F32(1) / total[j]
            for row in range(value_size):
                for j in range(BLOCK):
                    sums_of_values[row, j] *= factors[j]
            write(y, one, head, begin, end, transposed(sums_of_values), F32(1))


@compiled
def attend_backward(
    of_y: Array,
    q: Array,
    k: Array,
    v: Array,
    cos: Fp32,
    sin: Fp32,
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
    pair, binary_scale = numbers_in(like), F32(scale * LOG2_E)
    keys, values = turned_rows(k, one, kv, 0, length, like, cos, sin), rows(v, one, kv, 0, length, like)
    key_columns = transposed(pairs_of_rows(keys, k))
    wide_size, wide_value_size = whole_vectors(size), whole_vectors(value_size)
    of_keys, of_values = np.zeros((len(keys), wide_size), F32), np.zeros((len(keys), wide_value_size), F32)
    scores, of_p = np.empty((BLOCK, BLOCK), F32), np.empty((BLOCK, BLOCK), F32)
    p, of_s = scores.view(like.dtype), of_p.view(like.dtype)
    of_s_columns = of_s if pair == 1 else np.empty((BLOCK // pair, BLOCK), like.dtype)
    of_columns = np.empty((wide_size, BLOCK), F32)
    log_sum, inner = np.empty(BLOCK, F32), np.empty(BLOCK, F32)
    for head in range(kv * groups, (kv + 1) * groups):
        for begin in range(0, length, BLOCK):
            end = min(begin + BLOCK, length)
            q_block = turned_rows(q, one, head, begin, end, like, cos, sin)
            of_y_block = rows(of_y, one, head, begin, end, like)
            columns, of_y_columns = transposed(q_block), transposed(of_y_block)
            q_rows, of_y_rows = pairs_of_rows(q_block, q), pairs_of_rows(of_y_block, of_y)
            inner_products(inner, of_y_columns, transposed(rows(y, one, head, begin, end, like)))
            log_sum[: end - begin], log_sum[end - begin :] = log_sums[one, head, begin:end], 0
            of_columns[:] = 0
            first = last = 0
            while last < end:
                first, last = last, _end_of_tile(last, begin)
                few, num_keys = max(0, first - begin), last - first
                seeing, skipped, words = BLOCK - few, few // pair, (BLOCK - few) // pair
                tile, of_tile, seen_y = scores[:num_keys], of_p[:num_keys], of_y_columns[:, few:]
                set_product(tile[:, few:], keys[first:last], columns[:, few:], num_keys, size // pair, seeing)
                set_product(of_tile[:, few:], values[first:last], seen_y, num_keys, value_size // pair, seeing)
                if last > begin:
                    _hide_unseen(tile, few, -np.inf)
                    _hide_unseen(of_tile, few, 0)
                soften_backward(p, of_s, of_s_columns, tile, of_tile, log_sum, inner, few, binary_scale)
                sums = of_values[first:last]
                add_product(sums, p[:, skipped:], of_y_rows[skipped:], num_keys, words, wide_value_size)
                sums = of_keys[first:last]
                add_product(sums, of_s[:, skipped:], q_rows[skipped:], num_keys, words, wide_size)
                some_keys = key_columns[:, first // pair : last // pair]
                add_product(of_columns[:, few:], some_keys, of_s_columns[:, few:], size, num_keys // pair, seeing)
            write_turned_back(of_q, one, head, begin, end, transposed(of_columns), F32(scale), cos, sin)
    write_turned_back(of_k, one, kv, 0, length, of_keys, F32(scale), cos, sin)
    write(of_v, one, kv, 0, length, of_values, F32(1))


@compiled
def _end_of_tile(first: int, begin: int) -> int:  # pragma: no cover
    """Of keys from `first` on, for the block of queries from `begin` on."""
    return first + (BLOCK if first < begin else BLOCK // 2)


@compiled
def _hide_unseen(tile: Fp32, few: int, value: float) -> None:  # pragma: no cover
    """Put `value` where queries do not see keys: half a block of them, from the query `few` of the block on."""
    for key in range(BLOCK // 2):
        tile[key, few : few + key] = value
