"""Mixture of experts: a feed-forward of many small ones, of which each token takes the few its router chooses.

    x (B, L, D) ─ router ─▶ gates, experts ─ dispatch ─▶ rows by expert ─ gated feed-forward ─ combine ─▶ + ─▶ (B, L, D)
             └────────────────────────────────────────────────────────────────────── shared experts ──────┘

No expert has a capacity, so no token is dropped.
Legend: B batch, L length, D hidden size, T = B · L tokens, k experts a token, S = T · k rows, E experts.
"""

from torch import Tensor, nn

from tokenmill_trainer.model.config import ModelConfig
from tokenmill_trainer.model.dispatch import combine, dispatch, sort_by_expert
from tokenmill_trainer.model.feed_forward import ACTIVATIONS, FeedForward, gated
from tokenmill_trainer.model.grouped_linear import GroupedLinear
from tokenmill_trainer.model.router import Router, RouterReport


class Experts(nn.Module):
    """The gated feed-forwards that tokens are routed to, their matrices stacked."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.moe is not None, "experts are built where `moe` is set"
        self.num_experts = config.moe.num_experts
        self.activation = ACTIVATIONS[config.activation]
        width, inner = config.hidden_size, config.moe.expert_intermediate_size
        self.gate_proj = GroupedLinear(self.num_experts, width, inner)
        self.up_proj = GroupedLinear(self.num_experts, width, inner)
        self.down_proj = GroupedLinear(self.num_experts, inner, width)

    def forward(self, x_TD: Tensor, gates_Tk: Tensor, experts_Tk: Tensor) -> Tensor:
        """Σ gate · expert(x) over each token's experts, (T, D)."""
        places = sort_by_expert(experts_Tk, self.num_experts)
        rows_SD, ends_E = dispatch(x_TD, places), places.ends_E
        inner = gated(self.activation, self.gate_proj(rows_SD, ends_E), self.up_proj(rows_SD, ends_E))
        return combine(self.down_proj(inner, ends_E), gates_Tk, places)


class MoE(nn.Module):
    """Router, routed experts, and experts that every token takes."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.moe is not None, "a layer has experts where `moe` is set"
        self.gate = Router(config)
        self.experts = Experts(config)
        shared_size = config.moe.num_shared_experts * config.moe.expert_intermediate_size
        self.shared_experts = FeedForward(config, shared_size) if shared_size else None

    def forward(self, x_BLD: Tensor) -> tuple[Tensor, RouterReport]:
        """(B, L, D) to (B, L, D), and what the router has to tell."""
        gates_BLk, experts_BLk, report = self.gate(x_BLD)
        y_TD = self.experts(x_BLD.flatten(0, 1), gates_BLk.flatten(0, 1), experts_BLk.flatten(0, 1))
        y_BLD = y_TD.view_as(x_BLD)
        return y_BLD if self.shared_experts is None else y_BLD + self.shared_experts(x_BLD), report
