"""Attention on a CPU without AVX-512, as `test_cpu_products` starts it: Numba is told of other features."""

import sys

import torch
import torch.nn.functional as F

from tokenmill_trainer.model.attention import attend
from tokenmill_trainer.model.cpu import attention, matmul
from tokenmill_trainer.model.cpu.vectors import HAS_PAIRS, LANES
from tokenmill_trainer.model.rotary import rotate

assert int(sys.argv[1]) == LANES
assert not HAS_PAIRS
assert not matmul.takes(torch.zeros(256, 64), torch.zeros(64, 64)), "of other vectors it is not known to be fast"
q, k, v = (torch.randn(1, heads, 200, 20).bfloat16().requires_grad_() for heads in (2, 1, 1))
assert attention.takes(q, k, v)
of_y = torch.randn(1, 2, 200, 20)
wide_q, wide_k, wide_v = wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
angles = torch.rand(200, 8)
rope, wide_rope = (angles.cos(), angles.sin()), (angles.double().cos(), angles.double().sin())
assert attention.turns(q, *rope)
y = attend(q, k, v, rope=rope)
turned = rotate(wide_q, wide_rope), rotate(wide_k, wide_rope)
expected = F.scaled_dot_product_attention(*(x.double() for x in turned), wide_v, is_causal=True, enable_gqa=True)
gradients = torch.autograd.grad(y, (q, k, v), of_y.bfloat16())
for mine, theirs in zip(
    (y, *gradients), (expected, *torch.autograd.grad(expected, wide, of_y.bfloat16().double())), strict=True
):
    torch.testing.assert_close(mine.double(), theirs, rtol=2**-7, atol=2**-7 * theirs.abs().max().item())
