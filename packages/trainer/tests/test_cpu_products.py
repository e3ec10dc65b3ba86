"""Products in registers, transposing and packing, and the gradients of weights that are made of them, against NumPy."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tokenmill_trainer.model.cpu import weight_gradient
from tokenmill_trainer.model.cpu.floats import compiled
from tokenmill_trainer.model.cpu.products import add_product, scale_and_add_product, set_product
from tokenmill_trainer.model.cpu.vectors import HAS_PAIRS, LANES, numbers_in, pack_rows, transpose, word

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
def transpose_it(target: Array, source: Array) -> None:
    transpose(target, source, source.shape[0], source.shape[1])


@compiled
def pack_it(target: Array, source: Array) -> None:
    pack_rows(target, source, target.shape[0], target.shape[1])


@compiled
def word_of(first: Any, second: Any, words: Array) -> Any:
    return word(first, second, words), numbers_in(words)


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
    assert (sums[M] == 7).all()
    assert (sums[:, vectors * LANES :] == 7).all()


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


def test_a_word_of_fp32_is_the_first() -> None:
    assert word_of(np.float32(1.5), np.float32(2.5), np.empty(0, np.float32)) == (1.5, 1)


@pytest.mark.skipif(not HAS_PAIRS, reason="no AVX-512 BF16")
@pytest.mark.parametrize("value", [1.0, -3.14159, 1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, np.inf, -np.inf, np.nan, 1e-20])
def test_a_word_of_bf16_holds_both_rounded(value: float) -> None:
    found, numbers = word_of(np.float32(0.1), np.float32(value), np.empty(0, np.uint32))
    halves = torch.from_numpy(np.array([found], np.uint32).view(np.uint16)).view(torch.bfloat16)
    torch.testing.assert_close(halves, torch.tensor([0.1, value]).bfloat16(), rtol=0, atol=0, equal_nan=True)
    assert numbers == 2


@pytest.mark.skipif(LANES != 16, reason="no AVX-512")
@pytest.mark.parametrize("shape", [(16, 16, 16), (2048, 384, 80), (144, 1040, 208), (144, 32, 1648)])
def test_weight_gradients_are_the_same_on_any_number_of_cores(shape: tuple[int, int, int]) -> None:
    tokens, width, size = shape
    of_y, x = torch.from_numpy(random(tokens, width)), torch.from_numpy(random(size, tokens)).t()
    assert weight_gradient.takes(of_y, x)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(weight_gradient.weight_gradient(of_y, x))
    torch.set_num_threads(before)
    torch.testing.assert_close(found[0].double(), of_y.double().t() @ x.double(), rtol=1e-5, atol=1e-4)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.skipif(LANES != 16, reason="no AVX-512")
def test_sums_over_many_tokens_lose_few_digits() -> None:
    of_y, x = (torch.rand(1 << 16, 16, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    exact = of_y.double().t() @ x.double()
    assert ((weight_gradient.weight_gradient(of_y, x) - exact).abs() / exact).max() < 3e-6


@pytest.mark.parametrize("shape", [(20, 16, 16), (16, 20, 16), (16, 16, 20), (0, 16, 16)])
def test_gradients_of_other_sizes_go_to_onednn(shape: tuple[int, int, int]) -> None:
    tokens, width, size = shape
    assert not weight_gradient.takes(torch.zeros(tokens, width), torch.zeros(tokens, size))


@pytest.mark.skipif(sys.platform != "linux" or LANES < 8, reason="for a CPU that knows AVX2")
@pytest.mark.parametrize(("features", "lanes"), [("", 4), ("+avx,+avx2,+fma", 8)])
def test_attention_on_cpus_with_shorter_vectors(features: str, lanes: int, tmp_path: Path) -> None:
    settings = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": features, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, str(Path(__file__).with_name("lanes_worker.py")), str(lanes)]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
