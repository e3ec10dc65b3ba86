"""What computes products, attention and losses on CPUs, against PyTorch's own."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tokenmill_trainer.cross_entropy import BLOCK_ON_CPU, IGNORED, token_losses
from tokenmill_trainer.model import cpu_attention, onednn
from tokenmill_trainer.model.attention import attend
from tokenmill_trainer.model.linear import linear

Function = Callable[..., Tensor]


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()


def with_gradients(function: Function, *inputs: Tensor) -> list[Tensor]:
    y = function(*inputs)
    of_y = random(*y.shape, dtype=torch.bfloat16).detach().float()  # the same for all types
    return [y.detach(), *torch.autograd.grad(y.float(), inputs, of_y)]


@pytest.mark.parametrize("shape", [(40, 24), (2, 20, 24), (0, 24)])
@pytest.mark.parametrize("bias", [False, True])
def test_linear_is_that_of_torch(shape: tuple[int, ...], bias: bool) -> None:
    inputs = [random(*shape), random(56, 24), *([random(56)] if bias else [])]
    assert onednn.takes(*inputs), "or this compares torch with itself"
    for got, expected in zip(with_gradients(linear, *inputs), with_gradients(F.linear, *inputs), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)


def test_linear_takes_matrices_with_gaps() -> None:
    wide = random(40, 64)
    got = with_gradients(lambda x, w: linear(x[:, 8:32], w[:, ::2]), wide, random(56, 48))
    expected = with_gradients(lambda x, w: F.linear(x[:, 8:32], w[:, ::2]), wide, random(56, 48))
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("heads", "kv_heads", "length"), [(4, 4, 300), (6, 2, 257), (3, 1, 128)])
@pytest.mark.parametrize("value_size", [16, 12])
@pytest.mark.parametrize("compiled", [False, True])
# Two warnings of torch's compiler about itself: a deprecated part it imports, and `.grad` of inputs that are views.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_attention_is_that_of_torch(
    heads: int, kv_heads: int, length: int, value_size: int, dtype: torch.dtype, compiled: bool
) -> None:
    if compiled and (heads, dtype, value_size) != (6, torch.bfloat16, 16):
        pytest.skip("compiled once")
    q = random(2, length, heads, 16, dtype=dtype).transpose(1, 2)  # as projections give them
    k = random(2, length, kv_heads, 16, dtype=dtype).transpose(1, 2)
    v = random(2, length, kv_heads, value_size, dtype=dtype).transpose(1, 2)
    assert cpu_attention.takes(q, k), "or this compares torch with itself"
    function = torch.compile(attend) if compiled else attend
    got = with_gradients(partial(function, scale=0.3), q, k, v)
    wide = [x.detach().float().requires_grad_() for x in (q, k, v)]
    sdpa = partial(F.scaled_dot_product_attention, is_causal=True, scale=0.3, enable_gqa=True)
    expected = with_gradients(sdpa, *wide)
    bits = {torch.float32: 18, torch.bfloat16: 7, torch.float16: 10}[dtype]
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine.float(), theirs, rtol=2**-bits, atol=2**-bits * theirs.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_losses_are_those_of_torch_over_several_blocks(dtype: torch.dtype) -> None:
    vocabulary = BLOCK_ON_CPU // 3
    logits = random(8, vocabulary, dtype=dtype)  # three rows a block, and two
    labels = torch.tensor([0, 5, IGNORED, vocabulary - 1, 7, IGNORED, 9, 1])
    weights, of_log_z = torch.linspace(0.5, 2.0, 8), torch.linspace(-1.0, 1.0, 8)

    losses, log_z = token_losses(logits, labels)
    got = torch.autograd.grad((losses * weights + log_z * of_log_z).sum(), logits)[0]

    wide = logits.detach().float().requires_grad_()
    expected = F.cross_entropy(wide, labels, ignore_index=IGNORED, reduction="none")
    expected_z = torch.logsumexp(wide, -1)
    gradient = torch.autograd.grad((expected * weights + expected_z * of_log_z).sum(), wide)[0]
    torch.testing.assert_close((losses, log_z), (expected, expected_z), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(got.float(), gradient, rtol=1e-5 if dtype == torch.float32 else 2**-8, atol=1e-7)


def test_gradients_of_gradients_of_the_loss_are_refused() -> None:
    logits = torch.randn(4, 7, requires_grad=True)
    losses, _ = token_losses(logits, torch.tensor([1, 2, 3, 4]))
    with pytest.raises(RuntimeError, match="differentiated once"):
        torch.autograd.grad(losses.sum(), logits, create_graph=True)


@pytest.mark.parametrize("shape", [(5,), (0, 5), (2, 3, 5)])
def test_products_take_the_shapes_that_torch_takes(shape: tuple[int, ...]) -> None:
    x, weight, bias = torch.randn(shape), torch.randn(4, 5), torch.randn(4)
    torch.testing.assert_close(linear(x, weight, bias), torch.nn.functional.linear(x, weight, bias))
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight, bias).dtype == torch.bfloat16
    with pytest.raises(RuntimeError, match="shape"):
        linear(torch.randn(2, 6), weight)


def test_heads_that_do_not_divide_are_refused() -> None:
    q, k = torch.randn(1, 4, 128, 8), torch.randn(1, 3, 128, 8)
    with pytest.raises(RuntimeError):
        attend(q, k, k)
