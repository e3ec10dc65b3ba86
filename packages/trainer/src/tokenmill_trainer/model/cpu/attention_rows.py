"""Rows of one head, between tensors in memory and the blocks that attention's products take.

    x (B, L, heads, d) ─ rows (─ turn) ─▶ (rows, d in words) ─ pairs_of_rows ─▶ (rows in words, d)
                                                 └─ transposed ─▶ (d in words, rows)

Blocks are whole, filled up with zeros: rows to BLOCK, columns to vectors. Words (`vectors`) are of fp32 for x in fp32,
and of pairs of bf16 for x in bf16. A table of cos and sin, each (B or 1, L, half), turns rows by their positions; where
half is 0, they stay as they are.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill_trainer.model.cpu.floats import F32, compiled, narrowed
from tokenmill_trainer.model.cpu.vectors import LANES, copy_rows, numbers_in, pack_rows, transpose, turn

Fp32 = NDArray[np.float32]
Array = NDArray[Any]
"""fp32, or bf16 in uint16."""
Words = NDArray[Any]
"""fp32, or pairs of bf16 in uint32."""

BLOCK = 64
"""Half of it is a multiple of LANES words."""


@compiled
def rows(x: Array, one: int, head: int, begin: int, end: int, like: Words) -> Words:  # pragma: no cover
    """Those of x (B, L, heads, d), in words of neighbours in a row."""
    size = x.shape[3]
    words = np.empty((whole_blocks(end - begin), whole_vectors(size // numbers_in(like))), like.dtype)
    numbers = words.view(x.dtype)
    if size == numbers.shape[1]:
        copy_rows(words, x[one, begin:end, head], end - begin, words.shape[1])
    else:
        for i in range(end - begin):
            for j in range(size):
                numbers[i, j] = x[one, begin + i, head, j]
            numbers[i, size:] = 0
    words[end - begin :] = 0
    return words


@compiled
def turned_rows(
    x: Array, one: int, head: int, begin: int, end: int, like: Words, cos: Fp32, sin: Fp32
) -> Words:  # pragma: no cover
    """The same turned by their positions, and rounded to the type of x."""
    words: Words = rows(x, one, head, begin, end, like)
    table = one % len(cos)
    turn(words.view(x.dtype), cos[table, begin:end], sin[table, begin:end], F32(1))
    return words


@compiled
def pairs_of_rows(block: Words, x: Array) -> Words:  # pragma: no cover
    """What `rows` gives of x, in words of neighbours in a column."""
    if numbers_in(block) == 1:
        return block
    words = np.empty((len(block) // 2, 2 * block.shape[1]), block.dtype)
    pack_rows(words, block.view(x.dtype), len(words), words.shape[1])
    return words


@compiled
def transposed(block: Words) -> Words:  # pragma: no cover
    """(N, M) of (M, N), where both are multiples of LANES."""
    columns = np.empty((block.shape[1], block.shape[0]), block.dtype)
    transpose(columns, block, block.shape[0], block.shape[1])
    return columns


@compiled
def write(x: Array, one: int, head: int, begin: int, end: int, block: Fp32, scale: Any) -> None:  # pragma: no cover
    """Fill those rows of x (B, L, heads, d) with the block times `scale`."""
    for i in range(end - begin):
        for j in range(x.shape[3]):
            x[one, begin + i, head, j] = narrowed(block[i, j] * scale, x)


@compiled
def write_turned_back(
    x: Array, one: int, head: int, begin: int, end: int, block: Fp32, scale: Any, cos: Fp32, sin: Fp32
) -> None:  # pragma: no cover
    """The same with the gradient of what `turned_rows` gives; it turns the block."""
    table = one % len(cos)
    turn(block, cos[table, begin:end], sin[table, begin:end], F32(-1))
    write(x, one, head, begin, end, block, scale)


@compiled
def whole_blocks(length: int) -> int:  # pragma: no cover
    """`length`, or the next that is whole blocks."""
    return (length + BLOCK - 1) // BLOCK * BLOCK


@compiled
def whole_vectors(size: int) -> int:  # pragma: no cover
    """`size`, or the next that is whole vectors."""
    return (size + LANES - 1) // LANES * LANES
