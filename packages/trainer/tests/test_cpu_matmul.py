"""Products of large matrices on CPUs, layers that are made of them, and models that keep no copy of their weights."""

import gc
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.model.cpu import kept_memory, matmul
from tokenmill_trainer.model.cpu.vectors import LANES
from tokenmill_trainer.model.linear import Linear, linear, linear_each
from tokenmill_trainer.model.norms import RMSNorm

FP32, BF16 = torch.float32, torch.bfloat16
needs_pairs = pytest.mark.skipif(not matmul.HAS_FAST_PAIRS, reason="no AVX-512 BF16, or AMX")
types = pytest.mark.parametrize(
    ("dtype", "of_weight"), [(FP32, FP32), *(pytest.param(BF16, of, marks=needs_pairs) for of in (BF16, FP32))]
)
pytestmark = pytest.mark.skipif(LANES != 16, reason="no AVX-512")


def random(*shape: int, dtype: torch.dtype = FP32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def on_threads(compute: Callable[[], Sequence[Tensor]]) -> Sequence[Tensor]:
    """What it gives, the same on one thread, two and three."""
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(compute())
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            assert torch.equal(one, other)
    return found[0]


def assert_near(found: Tensor, exact: Tensor) -> None:
    """To within the rounding of its type, and of sums in fp32."""
    size = exact.abs().max().item() + 1e-30
    torch.testing.assert_close(found.double(), exact, rtol=2**-8 if found.dtype == BF16 else 1e-5, atol=2e-6 * size)


@types
@pytest.mark.parametrize("shape", [(128, 32, 32), (2048, 384, 96), (160, 1024, 544), (128, 4160, 96), (1184, 64, 1088)])
def test_products_are_exact_and_the_same_on_any_number_of_cores(
    shape: tuple[int, int, int], dtype: torch.dtype, of_weight: torch.dtype
) -> None:
    M, K, N = shape
    x, w, y = random(M, K, dtype=dtype), random(N, K, dtype=of_weight), random(M, N, dtype=dtype)
    other = random(N + 32, K, dtype=of_weight)
    assert matmul.takes(x, w)
    assert matmul.takes(y, w.t())
    wide_x, wide_w, wide_y, wide_other = (tensor.to(dtype).double() for tensor in (x, w, y, other))
    for found, exact in zip(
        on_threads(lambda: matmul.products(x, [w, other])), (wide_x @ wide_w.t(), wide_x @ wide_other.t()), strict=True
    ):
        assert found.dtype == dtype
        assert_near(found, exact)
    (found,) = on_threads(lambda: [matmul.sum_of_products([y], [w])])
    assert_near(found, wide_y @ wide_w)
    (found,) = on_threads(lambda: [matmul.sum_of_products([y, x], [w, random(K, K, dtype=of_weight)])])
    assert_near(found, wide_y @ wide_w + wide_x @ random(K, K, dtype=of_weight).to(dtype).double())
    for result in {dtype, FP32}:
        pair = on_threads(lambda result=result: matmul.turned_products([y, x], x, result))
        assert_near(pair[0], wide_y.t() @ wide_x)
        assert_near(pair[1], wide_x.t() @ wide_x)
        assert pair[0].dtype == result


@types
def test_matrices_with_gaps_are_taken(dtype: torch.dtype, of_weight: torch.dtype) -> None:
    x, w, y = (
        random(256, 128, dtype=dtype)[:, 32:96],
        random(64, 96, dtype=of_weight).t(),
        random(96, 256, dtype=dtype).t(),
    )
    assert_near(matmul.products(x, [w])[0], x.double() @ w.to(dtype).double().t())
    assert_near(matmul.sum_of_products([y], [w]), y.double() @ w.to(dtype).double())
    assert_near(matmul.turned_products([y], x, FP32)[0], y.double().t() @ x.double())


@needs_pairs
def test_weights_are_rounded_to_the_nearest_bf16() -> None:
    x, w, y = random(128, 64, dtype=BF16), random(96, 64), random(128, 96, dtype=BF16)
    assert torch.equal(matmul.products(x, [w])[0], matmul.products(x, [w.bfloat16()])[0])
    assert torch.equal(matmul.sum_of_products([y], [w]), matmul.sum_of_products([y], [w.bfloat16()]))


def test_sums_over_many_tokens_lose_few_digits() -> None:
    of_y, x = (torch.rand(1 << 16, 16, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    exact = of_y.double().t() @ x.double()
    assert ((matmul.turned_products([of_y], x, FP32)[0] - exact).abs() / exact).max() < 3e-6


@pytest.mark.parametrize(
    ("x", "w"),
    [
        (torch.zeros(136, 32), torch.zeros(32, 32)),
        (torch.zeros(128, 24), torch.zeros(32, 24)),
        (torch.zeros(128, 32), torch.zeros(20, 32)),
        (torch.zeros(112, 32), torch.zeros(32, 32)),
        (torch.zeros(0, 32), torch.zeros(32, 32)),
        (torch.zeros(128, 0), torch.zeros(32, 0)),
        (torch.zeros(128, 32), torch.zeros(32, 32, dtype=BF16)),
        (torch.zeros(128, 16, dtype=BF16), torch.zeros(32, 16)),
        (torch.zeros(128, 32, dtype=torch.float16), torch.zeros(32, 32)),
        (torch.zeros(128, 32, dtype=torch.float64), torch.zeros(32, 32, dtype=torch.float64)),
    ],
)
def test_other_sizes_and_types_are_for_others(x: Tensor, w: Tensor) -> None:
    assert not matmul.takes(x, w)


def gradients(function: Callable[..., Any], inputs: Sequence[Tensor]) -> list[Tensor]:
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    ys = function(*leaves)
    of_ys = [random(*y.shape).bfloat16().to(y.dtype) for y in ys]
    return [*ys, *torch.autograd.grad(ys, leaves, of_ys)]


@types
@pytest.mark.parametrize("tokens", [256, 250])  # of 250 oneDNN and torch take what they can
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
def test_layers_are_their_definition(tokens: int, dtype: torch.dtype, of_weight: torch.dtype, compiled: bool) -> None:
    x, w, bias = random(2, tokens // 2, 64, dtype=dtype), random(96, 64, dtype=of_weight), random(96, dtype=dtype)
    if compiled and tokens == 250:
        pytest.skip("compiled once")
    function = torch.compile(linear) if compiled else linear
    wide = [tensor.to(dtype).double() for tensor in (x, w, bias)]
    found = gradients(lambda *inputs: [function(*inputs)], (x, w, bias))
    for got, exact in zip(found, gradients(lambda *inputs: [F.linear(*inputs)], wide), strict=True):
        assert_near(got if tokens == 256 else got.to(dtype), exact)
    assert [tensor.dtype for tensor in found] == [dtype, dtype, of_weight, dtype]


@types
def test_weights_can_be_let_go_afterwards(dtype: torch.dtype, of_weight: torch.dtype) -> None:
    """As FSDP does with those that it gathers. What NumPy has had by the usual way cannot."""
    x, norm = random(256, 64, dtype=dtype), RMSNorm(64, 1e-5).to(of_weight)
    weights = [random(96, 64, dtype=of_weight), random(96, dtype=dtype), norm.weight]
    leaves = [tensor.detach().requires_grad_() for tensor in weights[:2]]
    linear(norm(x), *leaves).sum().backward()
    for weight in (*leaves, norm.weight):
        assert weight.grad is not None
        weight.untyped_storage().resize_(0)


@types
def test_layers_of_one_input_are_each_of_them(dtype: torch.dtype, of_weight: torch.dtype) -> None:
    x, layers = random(256, 64, dtype=dtype), [Linear(64, size, bias=False).to(of_weight) for size in (32, 96, 32)]
    layers[1].weight.requires_grad_(False)
    wanted = [layer.weight for layer in layers if layer.weight.requires_grad]

    def each(function: Callable[..., Sequence[Tensor]]) -> list[Tensor]:
        leaf = x.detach().requires_grad_()
        ys = function(leaf)
        of_ys = [random(*y.shape, dtype=dtype) for y in ys]
        return [*ys, *torch.autograd.grad(ys, (leaf, *wanted), of_ys)]

    for got, expected in zip(
        each(lambda x: linear_each(x, layers)), each(lambda x: [f(x) for f in layers]), strict=True
    ):
        torch.testing.assert_close(
            got, expected, rtol=2**-7 if dtype == BF16 else 1e-5, atol=1e-4 if dtype == FP32 else 1e-1
        )


@pytest.mark.parametrize("use", [slice(0, 1), slice(1, 3)])
def test_layers_whose_result_is_not_used_get_zeros(use: slice) -> None:
    x, layers = random(256, 64).requires_grad_(), [Linear(64, 32, bias=False) for _ in range(3)]
    sum(y.sum() for y in linear_each(x, layers)[use]).backward()
    expected = torch.autograd.grad(sum(F.linear(x, layer.weight).sum() for layer in layers[use]), x)[0]
    torch.testing.assert_close(x.grad, expected)
    for place, layer in enumerate(layers):
        assert layer.weight.grad is None or layer.weight.grad.any() == (place in range(3)[use])


@pytest.mark.parametrize("what", ["bias", "hook", "kind", "type"])
def test_layers_that_are_more_than_a_product_are_called(what: str) -> None:
    x, calls = random(256, 64), []
    first, second = Linear(64, 32, bias=what == "bias"), Linear(64, 32, bias=False)
    if what == "hook":
        first.register_forward_hook(lambda *_: calls.append(1))
    if what == "kind":
        first = nn.Sequential(nn.Linear(64, 32), nn.Tanh())  # type: ignore[assignment]
    if what == "type":
        x = random(250, 64)
    ys = linear_each(x, (first, second))
    torch.testing.assert_close(ys, [first(x), second(x)])
    assert len(calls) == 2 * (what == "hook")


def test_memory_of_a_large_result_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_memory, "LEAST", 1 << 12)
    monkeypatch.setattr(kept_memory, "_kept", kept_memory._Kept())
    first = kept_memory.empty(64, 32, FP32).fill_(1)
    place, view = first.data_ptr(), first[:2]
    second = kept_memory.empty(64, 32, FP32).fill_(2)
    assert second.data_ptr() != place, "the first is still in use"
    del first
    gc.collect()
    assert kept_memory.empty(64, 32, FP32).data_ptr() != place, "a part of it is"
    assert view.eq(1).all()
    del view
    again = kept_memory.empty(32, 128, BF16)
    assert again.data_ptr() == place
    assert (again.shape, again.dtype) == ((32, 128), BF16)
    del again
    assert kept_memory.empty(64, 33, FP32).numel() == 64 * 33
    assert kept_memory.empty(4, 4, FP32).untyped_storage().resizable(), "small ones are malloc's business"


MODEL = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
}


@needs_pairs
@pytest.mark.parametrize("tied", [False, True])
def test_models_in_bf16_round_their_weights_on_the_way(
    make_config: Callable[..., RunConfig], source: GlobalBatches, tied: bool
) -> None:
    """Without a copy in bf16; and gradients are not rounded, as a sum of many would lose them."""
    config = make_config(
        model={**MODEL, "tied_embeddings": tied}, training={"precision": "bf16", "micro_batch_size": 8, "steps": 1}
    )
    with initialize(config, source) as engine:
        weights = dict(engine.model.named_parameters())
        batch = next(engine.batches())
        loss = engine(batch)
        computing = dict(engine.model.named_parameters())
        for name, weight in weights.items():
            assert (computing[name] is weight) == (weight.ndim == 2), name
        engine.backward(loss)
        for name, weight in weights.items():
            assert weight.grad is not None, name
            is_rounded = torch.equal(weight.grad, weight.grad.bfloat16().float())
            assert is_rounded == (weight.ndim == 1), name
