"""Norm, rotation and gate, each one pass over its rows forward and one backward, compiled by Numba.

Arrays hold fp32, or bf16 in uint16; all is computed in fp32. `begin` and `end` bound the rows that a call is for, so
that cores can share them; what is summed over rows is summed for these.

Legend: N rows, D size of one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill_trainer.model.cpu.floats import F32, compiled, exp, narrowed, wide

Fp32 = NDArray[np.float32]
Array = NDArray[Any]

LANES = 64
"""Sums along a row are taken in so many columns, as wide as vectors of any CPU, and these added up in fp64."""


@compiled
def norm(
    x: Array, weight: Array, eps: float, y: Array, inverse: Fp32, begin: int, end: int
) -> None:  # pragma: no cover
    """Fill y (N, D) with x · inverse · weight, where inverse (N,) is 1 / sqrt(mean(x²) + eps)."""
    size, whole = x.shape[1], x.shape[1] // LANES * LANES
    lanes = np.empty(LANES, F32)
    for i in range(begin, end):
        lanes[:] = 0
        for first in range(0, whole, LANES):
            for j in range(LANES):
                value = wide(x[i, first + j])
                lanes[j] += value * value
        total = 0.0
        for j in range(LANES):
            total += lanes[j]
        for j in range(whole, size):
            total += wide(x[i, j]) * wide(x[i, j])
        inverse[i] = 1 / np.sqrt(total / size + eps)
        for j in range(size):
            y[i, j] = narrowed(wide(x[i, j]) * inverse[i] * wide(weight[j]), y)


@compiled
def norm_backward(
    of_y: Array, x: Array, weight: Array, inverse: Fp32, of_x: Array, of_weight: Fp32, begin: int, end: int
) -> None:  # pragma: no cover
    """Fill of_x (N, D), and add these rows' part to of_weight (D,)."""
    size, whole = x.shape[1], x.shape[1] // LANES * LANES
    lanes = np.empty(LANES, F32)
    for i in range(begin, end):
        lanes[:] = 0
        for first in range(0, whole, LANES):
            for j in range(LANES):
                lanes[j] += wide(of_y[i, first + j]) * wide(weight[first + j]) * wide(x[i, first + j])
        inner = 0.0
        for j in range(LANES):
            inner += lanes[j]
        for j in range(whole, size):
            inner += wide(of_y[i, j]) * wide(weight[j]) * wide(x[i, j])
        factor, along = inverse[i], F32(inner / size * inverse[i] * inverse[i])
        for j in range(size):
            value, of_value = wide(x[i, j]), wide(of_y[i, j])
            of_x[i, j] = narrowed(factor * (of_value * wide(weight[j]) - along * value), of_x)
            of_weight[j] += of_value * value * factor


@compiled
def rotate(
    x: Array, cos: Fp32, sin: Fp32, direction: float, y: Array, begin: int, end: int
) -> None:  # pragma: no cover
    """Fill y (N, H, d) with the heads of each token turned by its row of cos and sin, each (M, d / 2 or less).

    N is a multiple of M: sequences lie one after another. `direction` is 1, or -1 to turn back.
    """
    half, size = cos.shape[1], x.shape[2]
    for i in range(begin, end):
        place = i % len(cos)
        for head in range(x.shape[1]):
            for j in range(half):
                first, second = wide(x[i, head, j]), wide(x[i, head, half + j])
                c, s = cos[place, j], sin[place, j] * F32(direction)
                y[i, head, j] = narrowed(first * c - second * s, y)
                y[i, head, half + j] = narrowed(second * c + first * s, y)
            for j in range(2 * half, size):
                y[i, head, j] = x[i, head, j]


@compiled
def silu_gate(gate: Array, up: Array, y: Array, begin: int, end: int) -> None:  # pragma: no cover
    """Fill y (N, D) with gate · sigmoid(gate) · up."""
    for i in range(begin, end):
        for j in range(gate.shape[1]):
            value = wide(gate[i, j])
            y[i, j] = narrowed(value / (F32(1) + exp(-value)) * wide(up[i, j]), y)


@compiled
def silu_gate_backward(
    of_y: Array, gate: Array, up: Array, of_gate: Array, of_up: Array, begin: int, end: int
) -> None:  # pragma: no cover
    """Fill the gradients, (N, D)."""
    for i in range(begin, end):
        for j in range(gate.shape[1]):
            value, of_value = wide(gate[i, j]), wide(of_y[i, j])
            sigmoid = F32(1) / (F32(1) + exp(-value))
            slope = sigmoid * (F32(1) + value * (F32(1) - sigmoid))
            of_gate[i, j] = narrowed(of_value * wide(up[i, j]) * slope, of_gate)
            of_up[i, j] = narrowed(of_value * value * sigmoid, of_up)


@compiled
def log_sums_of_exp(logits: Array, log_z: Fp32, begin: int, end: int) -> None:  # pragma: no cover
    """Fill log_z (N,) with log Σ exp(logits) of each row of logits (N, D)."""
    size, whole = logits.shape[1], logits.shape[1] // LANES * LANES
    lanes = np.empty(LANES, F32)
    for i in range(begin, end):
        lanes[:] = -np.inf
        for first in range(0, whole, LANES):
            for j in range(LANES):
                value = wide(logits[i, first + j])
                lanes[j] = value if value > lanes[j] else lanes[j]
        top = F32(-np.inf)
        for j in range(LANES):
            top = max(top, lanes[j])
        for j in range(whole, size):
            top = max(top, wide(logits[i, j]))
        lanes[:] = 0
        for first in range(0, whole, LANES):
            for j in range(LANES):
                lanes[j] += exp(wide(logits[i, first + j]) - top)
        total = 0.0
        for j in range(LANES):
            total += lanes[j]
        for j in range(whole, size):
            total += exp(wide(logits[i, j]) - top)
        log_z[i] = top + np.log(total)


@compiled
def loss_gradient(
    logits: Array, log_z: Fp32, labels: Array, of_z: Fp32, of_label: Fp32, gradient: Array, begin: int, end: int
) -> None:  # pragma: no cover
    """Fill gradient (N, D) with softmax(logits) · of_z, less of_label at the label's place; of_z and of_label (N,).

    `gradient` may be `logits`: of these no more is read than is overwritten next.
    """
    size, whole = logits.shape[1], logits.shape[1] // LANES * LANES
    lanes = np.empty(LANES, F32)
    for i in range(begin, end):
        place, label, log_sum, factor = labels[i], wide(logits[i, labels[i]]), log_z[i], of_z[i]
        for first in range(0, whole, LANES):
            for j in range(LANES):
                lanes[j] = exp(wide(logits[i, first + j]) - log_sum) * factor
            for j in range(LANES):
                gradient[i, first + j] = narrowed(lanes[j], gradient)
        for j in range(whole, size):
            gradient[i, j] = narrowed(exp(wide(logits[i, j]) - log_sum) * factor, gradient)
        gradient[i, place] = narrowed(exp(label - log_sum) * factor - of_label[i], gradient)
