"""The feed-forward of a block: gated, down(act(gate(x)) · up(x)) (arXiv:2002.05202), or plain, down(act(up(x)))."""

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from tokenmill_trainer.model.config import ModelConfig
from tokenmill_trainer.model.cpu import functions
from tokenmill_trainer.model.cpu.arrays import takes
from tokenmill_trainer.model.linear import Linear, linear_each

Activation = Literal["swiglu", "geglu", "gelu", "relu2"]


def gelu(x: Tensor) -> Tensor:
    """GELU in its tanh form (arXiv:1606.08415), as GPT-2 and Gemma have it."""
    return F.gelu(x, approximate="tanh")


def squared_relu(x: Tensor) -> Tensor:
    """max(x, 0)² (Primer, arXiv:2109.08668)."""
    return F.relu(x).square()


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "swiglu": F.silu,
    "geglu": gelu,
    "gelu": gelu,
    "relu2": squared_relu,
}
GATED: tuple[Activation, ...] = ("swiglu", "geglu")


def gated(activation: Callable[[Tensor], Tensor], gate: Tensor, up: Tensor) -> Tensor:
    """activation(gate) · up."""
    are_alike = gate.ndim > 1 and gate.shape == up.shape and gate.dtype == up.dtype
    if activation is F.silu and are_alike and takes(gate, up):
        return functions.silu_gate(gate, up)
    return activation(gate) * up


class FeedForward(nn.Module):
    """Two or three projections around an activation."""

    def __init__(self, config: ModelConfig, intermediate_size: int | None = None) -> None:
        super().__init__()
        width, inner, bias = config.hidden_size, intermediate_size or config.intermediate_size, config.mlp_bias
        self.activation = ACTIVATIONS[config.activation]
        self.gate_proj = Linear(width, inner, bias=bias) if config.activation in GATED else None
        self.up_proj = Linear(width, inner, bias=bias)
        self.down_proj = Linear(inner, width, bias=bias)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) to (B, L, D)."""
        if self.gate_proj is None:
            return self.down_proj(self.activation(self.up_proj(x_BLD)))  # type: ignore[no-any-return]
        return self.down_proj(gated(self.activation, *linear_each(x_BLD, (self.gate_proj, self.up_proj))))  # type: ignore[no-any-return]
