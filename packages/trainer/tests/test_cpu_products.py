"""Products in registers, transposing and packing, against NumPy."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tokenmill_trainer.model.cpu.floats import compiled
from tokenmill_trainer.model.cpu.products import add_product, scale_and_add_product, set_product, set_product_plus
from tokenmill_trainer.model.cpu.vectors import HAS_PAIRS, LANES, pack_columns, pack_rows, transpose

Array = NDArray[Any]
WORDS = ["float32", pytest.param("uint32", marks=pytest.mark.skipif(not HAS_PAIRS, reason="no AVX-512 BF16"))]


@compiled
def set_it(sums: Array, left: Array, right: Array) -> None:
    set_product(sums, left, right, left.shape[0], left.shape[1], right.shape[1])


@compiled
def add_it(sums: Array, left: Array, right: Array) -> None:
    add_product(sums, left, right, left.shape[0], left.shape[1], right.shape[1])


@compiled
def scale_it(sums: Array, left: Array, right: Array, factors: Array) -> None:
    scale_and_add_product(sums, left, right, left.shape[0], left.shape[1], right.shape[1], factors)


@compiled
def plus_it(sums: Array, left: Array, right: Array, row: Array) -> None:
    set_product_plus(sums, left, right, left.shape[0], left.shape[1], right.shape[1], row)


@compiled
def transpose_it(target: Array, source: Array) -> None:
    transpose(target, source, source.shape[0], source.shape[1])


@compiled
def pack_it(target: Array, source: Array) -> None:
    pack_rows(target, source, target.shape[0], target.shape[1])


@compiled
def transpose_words_of(target: Array, source: Array) -> None:
    transpose(target, source, target.shape[1], target.shape[0])


@compiled
def pack_columns_of(target: Array, source: Array) -> None:
    pack_columns(target, source, target.shape[1], target.shape[0])


def random(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def rounded(x: NDArray[np.float32], words: str) -> NDArray[np.float32]:
    return x if words == "float32" else torch.from_numpy(x).bfloat16().float().numpy()


def in_words(x: NDArray[np.float32], words: str) -> Array:
    """(M, K) with neighbours in a row in one word."""
    if words == "float32":
        return x
    halves: Array = torch.from_numpy(x.copy()).bfloat16().view(torch.uint16).numpy()
    return halves.view(np.uint32)


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("shape", [(4, 2, 1), (32, 64, 8), (20, 48, 5), (64, 6, 9)])
def test_products_are_those_of_numpy(shape: tuple[int, int, int], words: str) -> None:
    M, K, vectors = shape
    left, right, old = random(M, K), random(K, vectors * LANES), random(M, vectors * LANES)
    factors = random(vectors * LANES)
    product = rounded(left, words).astype(np.float64) @ rounded(right, words)
    given = in_words(left, words), np.ascontiguousarray(in_words(right.T, words).T)
    sums = np.full((M + 1, vectors * LANES + 3), 7, np.float32)  # one with gaps: nothing else may be written
    part = sums[:M, : vectors * LANES]
    set_it(part, *given)
    np.testing.assert_allclose(part, product, rtol=1e-5, atol=1e-4)
    part[:] = old
    add_it(part, *given)
    np.testing.assert_allclose(part, old + product, rtol=1e-5, atol=1e-4)
    part[:] = old
    scale_it(part, *given, factors)
    np.testing.assert_allclose(part, old * factors + product, rtol=1e-5, atol=1e-4)
    plus_it(part, *given, factors)
    np.testing.assert_allclose(part, product + factors, rtol=1e-5, atol=1e-4)
    assert (sums[M] == 7).all()
    assert (sums[:, vectors * LANES :] == 7).all()


@pytest.mark.skipif(not HAS_PAIRS, reason="no AVX-512 BF16")
def test_products_are_rounded_where_bf16_is_to_hold_them() -> None:
    left, right, row = random(8, 5), random(5, 3 * LANES), random(3 * LANES)
    exact, found = np.zeros((8, 3 * LANES), np.float32), np.zeros((8, 3 * LANES), np.uint16)
    plus_it(exact, left, right, row)
    plus_it(found, left, right, row)
    expected = torch.from_numpy(exact).bfloat16()
    assert torch.equal(torch.from_numpy(found).view(torch.bfloat16), expected)


def test_words_are_transposed() -> None:
    source = np.arange(2 * LANES * 3 * LANES, dtype=np.uint32).reshape(2 * LANES, 3 * LANES)
    target = np.zeros((3 * LANES + 1, 2 * LANES + 1), np.uint32)
    transpose_it(target[:-1, :-1], source)
    np.testing.assert_array_equal(target[:-1, :-1], source.T)
    assert not target[-1].any()
    assert not target[:, -1].any()


def test_rows_are_packed_two_to_a_word() -> None:
    halves = np.arange(6 * LANES, dtype=np.uint16).reshape(6, LANES) + 0xFF00
    packed = np.zeros((3, LANES), np.uint32)
    pack_it(packed, halves)
    np.testing.assert_array_equal(packed, halves[::2] | halves[1::2].astype(np.uint32) << 16)
    fp32, copy = random(3, LANES), np.zeros((3, LANES), np.float32)
    pack_it(copy, fp32)
    np.testing.assert_array_equal(copy, fp32)


@pytest.mark.skipif(not HAS_PAIRS, reason="no AVX-512 BF16")
def test_fp32_is_rounded_as_it_is_packed() -> None:
    numbers = random(2 * LANES, 4 * LANES)
    numbers[0, :3] = -np.inf, 1 + 2**-8, 1 + 3 * 2**-8
    halves: Array = torch.from_numpy(numbers).bfloat16().view(torch.uint16).numpy()
    for work, shape in ((transpose_words_of, (2 * LANES, 2 * LANES)), (pack_it, (LANES, 4 * LANES))):
        found, expected = np.zeros(shape, np.uint32), np.zeros(shape, np.uint32)
        work(found, numbers)
        work(expected, halves)
        np.testing.assert_array_equal(found, expected)


def test_columns_are_packed_as_rows_are_and_then_transposed() -> None:
    halves = np.random.default_rng(0).integers(0, 1 << 16, (4 * LANES, 3 * LANES), np.uint16)
    rows, columns = np.zeros((2 * LANES, 3 * LANES), np.uint32), np.zeros((3 * LANES, 2 * LANES), np.uint32)
    pack_it(rows, halves)
    pack_columns_of(columns, halves)
    np.testing.assert_array_equal(columns, rows.T)


@pytest.mark.skipif(sys.platform != "linux" or LANES < 8, reason="for a CPU that knows AVX2")
@pytest.mark.parametrize(("features", "lanes"), [("", 4), ("+avx,+avx2,+fma", 8)])
def test_attention_on_cpus_with_shorter_vectors(features: str, lanes: int, tmp_path: Path) -> None:
    settings = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": features, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, str(Path(__file__).with_name("lanes_worker.py")), str(lanes)]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
