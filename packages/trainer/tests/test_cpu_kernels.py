"""What computes products, attention and losses on CPUs, against PyTorch's own."""

import multiprocessing
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from tokenmill_trainer.cross_entropy import IGNORED, token_losses
from tokenmill_trainer.model.attention import attend
from tokenmill_trainer.model.cpu import attention as cpu_attention
from tokenmill_trainer.model.cpu import functions, matmul, onednn
from tokenmill_trainer.model.cpu.arrays import PIECE, pieces, takes
from tokenmill_trainer.model.cpu.cores import on_each_core
from tokenmill_trainer.model.cpu.floats import compiled, exp, narrowed, wide
from tokenmill_trainer.model.cpu.vectors import LANES as VECTOR
from tokenmill_trainer.model.feed_forward import gated
from tokenmill_trainer.model.linear import linear
from tokenmill_trainer.model.norms import RMSNorm

Function = Callable[..., Tensor]


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + seed)
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
    assert not matmul.takes(inputs[0].flatten(0, -2), inputs[1])
    for got, expected in zip(with_gradients(linear, *inputs), with_gradients(F.linear, *inputs), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)


def test_linear_takes_matrices_with_gaps() -> None:
    wide = random(40, 64)
    got = with_gradients(lambda x, w: linear(x[:, 8:32], w[:, ::2]), wide, random(56, 48))
    expected = with_gradients(lambda x, w: F.linear(x[:, 8:32], w[:, ::2]), wide, random(56, 48))
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("heads", "kv_heads", "length"), [(4, 4, 300), (6, 2, 257), (3, 1, 128)])
@pytest.mark.parametrize(("size", "value_size"), [(16, 16), (16, 12), (80, 68)])
@pytest.mark.parametrize("compiled", [False, True])
# Two warnings of torch's compiler about itself: a deprecated part it imports, and `.grad` of inputs that are views.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_attention_is_that_of_torch(
    heads: int, kv_heads: int, length: int, size: int, value_size: int, dtype: torch.dtype, compiled: bool
) -> None:
    if compiled and (heads, dtype, value_size) != (6, torch.bfloat16, 16):
        pytest.skip("compiled once")
    q = random(2, length, heads, size, dtype=dtype).transpose(1, 2)  # as projections give them
    k = random(2, length, kv_heads, size, dtype=dtype, seed=1).transpose(1, 2)
    v = random(2, length, kv_heads, value_size, dtype=dtype).transpose(1, 2)
    assert cpu_attention.takes(q, k, v), "or this compares torch with itself"
    function = torch.compile(attend) if compiled else attend
    got = with_gradients(partial(function, scale=0.3), q, k, v)
    wide = [x.detach().float().requires_grad_() for x in (q, k, v)]
    sdpa = partial(F.scaled_dot_product_attention, is_causal=True, scale=0.3, enable_gqa=True)
    expected = with_gradients(sdpa, *wide)
    bits = {torch.float32: 18, torch.bfloat16: 6, torch.float16: 9}[dtype]  # as near as SDPA's kernel comes in them
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine.float(), theirs, rtol=2**-bits, atol=2**-bits * theirs.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("overwrite", [False, True])
def test_losses_are_those_of_torch_over_several_pieces(dtype: torch.dtype, overwrite: bool) -> None:
    logits = random(70, PIECE // 24 + 5, dtype=dtype).mul(3)
    labels = torch.arange(70) * 31
    labels[[2, 40]], labels[3] = IGNORED, logits.shape[1] - 1
    weights, of_log_z = torch.linspace(0.5, 2.0, 70), torch.linspace(-1.0, 1.0, 70)

    wide = logits.detach().float().requires_grad_()
    expected = F.cross_entropy(wide, labels, ignore_index=IGNORED, reduction="none")
    expected_z = torch.logsumexp(wide, -1)
    gradient = torch.autograd.grad((expected * weights + expected_z * of_log_z).sum(), wide)[0]

    losses, log_z = token_losses(logits, labels, overwrite)
    got = torch.autograd.grad((losses * weights + log_z * of_log_z).sum(), logits)[0]
    torch.testing.assert_close((losses, log_z), (expected, expected_z), rtol=1e-6, atol=2e-6)
    bits = {torch.float32: 17, torch.bfloat16: 8, torch.float16: 10}[dtype]
    torch.testing.assert_close(got.float(), gradient, rtol=2**-bits, atol=1e-7)
    assert (got.data_ptr() == logits.data_ptr()) == (overwrite and dtype != torch.float16)


def test_gradients_of_gradients_of_the_loss_are_refused() -> None:
    logits = torch.randn(4, 7, requires_grad=True)
    losses, _ = token_losses(logits, torch.tensor([1, 2, 3, 4]))
    with pytest.raises(RuntimeError, match="differentiated once"):
        torch.autograd.grad(losses.sum(), logits, create_graph=True)


@pytest.mark.parametrize("bias", [torch.arange(32.0)[::2], torch.ones(1).expand(16), torch.ones(1), torch.tensor(2.0)])
def test_linear_takes_the_biases_that_torch_takes(bias: Tensor) -> None:
    x, weight = torch.randn(2, 16), torch.randn(16, 16)
    torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_keys_that_count_for_nothing_leave_the_others(dtype: torch.dtype) -> None:
    q, k, v = torch.rand(1, 1, 300, 16), random(1, 1, 300, 16).detach(), random(1, 1, 300, 16, seed=1).detach()
    k[:, :, :40] = -torch.inf
    y = attend(q.to(dtype), k.to(dtype), v.to(dtype)).float()
    expected = F.scaled_dot_product_attention(*(x.to(dtype).double() for x in (q, k, v)), is_causal=True)
    assert y[:, :, :40].isnan().all(), "0 / 0: there is nothing that they attend to"
    torch.testing.assert_close(y[:, :, 40:].double(), expected[:, :, 40:], rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("scale", [-0.3, 0.0])
def test_scales_that_turn_scores_around_are_left_to_torch(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest score would no longer be the largest power."""
    monkeypatch.delattr(cpu_attention, "causal_attention")
    q = random(1, 2, 200, 16).detach()
    assert attend(q, q, q, scale=scale).shape == q.shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("size", "rotary_size"), [(64, 64), (80, 32), (96, 96)])
@pytest.mark.parametrize("by_sequence", [False, True])
def test_attention_turns_queries_and_keys(size: int, rotary_size: int, by_sequence: bool, dtype: torch.dtype) -> None:
    q = random(2, 200, 4, size, dtype=dtype).transpose(1, 2)
    k, v = (random(2, 200, 2, size, dtype=dtype, seed=seed).transpose(1, 2) for seed in (1, 2))
    angles = 6 * torch.rand(*((2, 1) if by_sequence else ()), 200, rotary_size // 2)
    rope = angles.cos(), angles.sin()
    assert cpu_attention.takes(q, k, v)
    assert cpu_attention.turns(q, *rope) == (rotary_size // 2 % VECTOR == 0)
    wide_rope = angles.double().cos(), angles.double().sin()

    def definition(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = plain_rotation(q, *wide_rope), plain_rotation(k, *wide_rope)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.2, enable_gqa=True)

    got = with_gradients(partial(attend, scale=0.2, rope=rope), q, k, v)
    expected = with_gradients(definition, *(x.detach().double().requires_grad_() for x in (q, k, v)))
    bits = {torch.float32: 17, torch.bfloat16: 5, torch.float16: 9}[dtype]
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(
            mine.double(), theirs.double(), rtol=2**-bits, atol=2**-bits * float(theirs.abs().max())
        )


@pytest.mark.parametrize("shape", [(200, 48), (100, 32), (3, 1, 200, 32), (200, 7)])
def test_tables_that_do_not_fit_do_not_turn(shape: tuple[int, ...]) -> None:
    q, table = torch.zeros(2, 4, 200, 64), torch.zeros(shape)
    assert not cpu_attention.turns(q, table, table)
    good = torch.zeros(200, 32)
    assert not cpu_attention.turns(q, good, good.double())
    assert not cpu_attention.turns(q, good, good.requires_grad_())


@pytest.mark.parametrize("shape", [(1, 0, 200, 16), (1, 2, 200, 0), (2, 200, 16)])
def test_attention_of_other_shapes_is_left_to_torch(shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape)
    assert not cpu_attention.takes(x, x, x)


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


def plain_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def plain_rotation(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    size = 2 * cos.shape[-1]
    first, second = x[..., :size].chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, x[..., size:]), -1)


def plain_gate(gate: Tensor, up: Tensor) -> Tensor:
    return gate * torch.sigmoid(gate) * up


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> object:
    """So many threads of torch, and those it had again."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


LARGE, SMALL = 700, 3
"""Rows that are shared out over cores, and too few for that."""


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_rows", [LARGE, SMALL])
@pytest.mark.parametrize("size", [384, 131, 2])
def test_norm_and_gate_are_their_definitions(dtype: torch.dtype, num_rows: int, size: int) -> None:
    x, y = random(2, num_rows, size, dtype=dtype), random(2, num_rows, size + 1, dtype=dtype)[..., 1:]  # y with gaps
    weight = (random(size, dtype=dtype) + 1).detach().requires_grad_()
    compare(partial(functions.rms_norm, eps=1e-5), plain_norm, x, weight)
    compare(functions.silu_gate, plain_gate, y, x)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("by_sequence", [False, True])
@pytest.mark.parametrize("rotary_size", [64, 24])
def test_rotation_is_its_definition(dtype: torch.dtype, by_sequence: bool, rotary_size: int) -> None:
    x = random(3, 250, 4, 64, dtype=dtype).transpose(1, 2)
    angles = torch.rand(3, 1, 250, rotary_size // 2) if by_sequence else torch.rand(250, rotary_size // 2)
    cos, sin = angles.cos(), angles.sin()
    compare(lambda x: functions.rotate(x, cos, sin), lambda x: plain_rotation(x, cos.double(), sin.double()), x)


def compare(function: Function, definition: Function, *inputs: Tensor) -> None:
    """Values and gradients of `function` with those of `definition` in fp64, to a rounding of the inputs' type."""
    assert takes(*inputs)
    got = with_gradients(function, *inputs)
    expected = with_gradients(definition, *(x.detach().double().requires_grad_() for x in inputs))
    rounding = 2e-6 if inputs[0].dtype == torch.float32 else 2**-8
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.dtype == inputs[0].dtype
        torch.testing.assert_close(
            mine.double(), theirs.double(), rtol=rounding, atol=rounding * float(theirs.abs().max())
        )


def test_no_number_of_threads_changes_a_bit() -> None:
    q, weight, rope = random(3, 500, 8, 32).transpose(1, 2), random(256), (torch.rand(500, 16), torch.rand(500, 16))
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        attended = with_gradients(partial(attend, scale=0.2, rope=rope), q, q, q)
        normed = with_gradients(
            lambda q, weight: functions.rms_norm(q.transpose(1, 2).flatten(2), weight, 1e-5), q, weight
        )
        found.append([*attended, *normed])
    torch.set_num_threads(1)
    for other in found[1:]:
        assert all(torch.equal(*pair) for pair in zip(found[0], other, strict=True))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_hidden(value: float) -> None:
    """The guard has to see it."""
    x = random(1, 256, 2, 16).detach()
    x[0, 100, 0, 3] = value
    x.requires_grad_()
    attended = attend(*(x.transpose(1, 2),) * 3, scale=0.25)
    normed, gated = functions.rms_norm(x, torch.ones(16), 1e-5), functions.silu_gate(x, x)
    log_z = token_losses(x.flatten(0, 2), torch.zeros(512, dtype=torch.long))[1]
    for result in (attended, normed, gated, log_z):
        assert not result.isfinite().all()
        assert not torch.autograd.grad(result.sum(), x, retain_graph=True)[0].isfinite().all()


def test_gates_far_from_zero() -> None:
    gate = torch.tensor([[-1e4, -100.0, -88.0, -87.0, -20.0, 0.0, 20.0, 100.0, 1e4]], requires_grad=True)
    got = with_gradients(functions.silu_gate, gate, torch.ones(1, 9, requires_grad=True))
    expected = with_gradients(
        plain_gate, gate.detach().double().requires_grad_(), torch.ones(1, 9).double().requires_grad_()
    )
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine.double(), theirs.double(), rtol=1e-6, atol=1e-35)


@compiled
def round_all(fp32: NDArray[np.float32], bf16: NDArray[np.uint16]) -> None:
    for i in range(len(fp32)):
        bf16[i] = narrowed(fp32[i], bf16)


@compiled
def widen_all(bf16: NDArray[np.uint16], fp32: NDArray[np.float32]) -> None:
    for i in range(len(fp32)):
        fp32[i] = wide(bf16[i])


@compiled
def exp_all(x: NDArray[np.float32], y: NDArray[np.float32]) -> None:
    for i in range(len(x)):
        y[i] = exp(x[i])


def test_exponentials_are_right_to_a_rounding_or_two() -> None:
    x = np.linspace(-87, 88, 1_000_003).astype(np.float32)
    y = np.empty_like(x)
    exp_all(x, y)
    assert np.abs(y / np.exp(x.astype(np.float64)) - 1).max() < 2e-7
    ends = np.array([-np.inf, -1e30, -87.1, 88.1, 1e30, np.inf], np.float32)
    exp_all(ends, y)
    assert y[:6].tolist() == [0, 0, 0, np.inf, np.inf, np.inf]


def test_bf16_is_rounded_as_torch_rounds_it() -> None:
    """Every upper half of an fp32, below, at and above the middle to the next."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    bits = np.concatenate([upper + rest for rest in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]).astype(np.uint32)
    fp32, found = bits.view(np.float32), np.empty(len(bits), np.uint16)
    round_all(fp32, found)
    expected = torch.from_numpy(fp32).bfloat16()
    got = torch.from_numpy(found).view(torch.bfloat16)
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got.nan_to_num(), expected.nan_to_num())
    back = np.empty_like(fp32)
    widen_all(found, back)
    assert torch.equal(torch.from_numpy(back).nan_to_num(), expected.float().nan_to_num())


@pytest.mark.parametrize(("num_rows", "row_size"), [(1, 1), (1000, 384), (64, PIECE), (7, 10 * PIECE)])
def test_pieces_make_up_the_rows(num_rows: int, row_size: int) -> None:
    assert [row for piece in pieces(num_rows, row_size) for row in range(*piece)] == list(range(num_rows))


@pytest.mark.usefixtures("threads")
def test_work_that_fails_on_a_core_fails() -> None:
    with pytest.raises(ZeroDivisionError):
        on_each_core(lambda item: print(1 // item), [3, 2, 1, 0])


def test_a_forked_child_has_cores_of_its_own() -> None:
    torch.set_num_threads(2)
    q = random(1, 128, 2, 16).detach().transpose(1, 2)
    attend(q, q, q)
    child = multiprocessing.get_context("fork").Process(target=attend, args=(q, q, q))
    child.start()
    child.join(60)
    torch.set_num_threads(1)
    assert child.exitcode == 0, "it waits for threads of its parent"


def test_shapes_that_do_not_fit_are_torch_s_business() -> None:
    q, k, v = (random(4, 128, 2, 16).detach().transpose(1, 2) for _ in range(3))
    sdpa = partial(F.scaled_dot_product_attention, is_causal=True)
    torch.testing.assert_close(attend(q[:1], k, v), sdpa(q[:1], k, v))
    torch.testing.assert_close(attend(q, k[:1], v[:1]), sdpa(q, k[:1], v[:1]))
    for wrong in ((q, k[..., :8], v), (q, k, v[:, :, :100]), (q, k.bfloat16(), v), (q.int(), k.int(), v.int())):
        assert not cpu_attention.takes(*wrong)
    norm = RMSNorm(8, 1e-5)
    with pytest.raises(RuntimeError):
        norm(torch.randn(2, 16))
    assert norm(torch.randn(8)).shape == (8,)
    torch.testing.assert_close(gated(F.silu, q[..., :1], q), F.silu(q[..., :1]) * q)
    assert gated(F.silu, q.bfloat16(), q).dtype == torch.float32
    for table in (torch.rand(128, 16), torch.rand(5, 4), torch.rand(2, 1, 128, 4)):
        assert not functions.can_rotate(q, table, table), table.shape
    assert not functions.can_rotate(q, *(torch.rand(128, 4).bfloat16(),) * 2)
    assert functions.rotate(q[:0], *(torch.rand(128, 4),) * 2).shape == (0, 2, 128, 16)


FORWARD_MODE = pytest.mark.filterwarnings("ignore:`torch.jit.script")
"""Torch's own rules for it warn of how they are written."""


@FORWARD_MODE
@pytest.mark.parametrize("of", ["linear", "norm", "gate"])
def test_in_forward_mode_torch_computes(of: str) -> None:
    x, other = random(4, 8).detach(), random(8, 8).detach()
    norm = RMSNorm(8, 1e-5)
    function = {
        "linear": lambda x: linear(x, other),
        "norm": norm,
        "gate": lambda x: gated(F.silu, x, x),
    }[of]
    _, along = torch.func.jvp(function, (x,), (torch.ones_like(x),))
    nearby = (function(x + 1e-2) - function(x - 1e-2)) / 2e-2
    torch.testing.assert_close(along, nearby.detach(), rtol=1e-2, atol=1e-2)
    assert along.abs().max() > 0.1


@FORWARD_MODE
def test_attention_in_forward_mode_is_refused() -> None:
    """By torch, whose own kernel has none."""
    q = random(1, 2, 128, 16).detach()
    with pytest.raises(NotImplementedError):
        torch.func.jvp(lambda q: attend(q, q, q), (q,), (q,))


def test_logits_that_are_overwritten_give_one_gradient() -> None:
    logits = torch.randn(4, 7, requires_grad=True)
    losses, _ = token_losses(logits, torch.tensor([1, 2, 3, 4]), overwrite=True)
    torch.autograd.grad(losses.sum(), logits, retain_graph=True)
    with pytest.raises(RuntimeError, match="overwritten"):
        torch.autograd.grad(losses.sum(), logits)
