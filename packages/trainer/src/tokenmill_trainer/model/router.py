"""Which experts a token takes, how much of each, and what keeps their loads even.

    x (B, L, D) ─ fp32 logits ─▶ scores (B, L, E) ─ + bias ─ best groups ─ top k ─▶ experts (B, L, k)
                                      └────────────── gathered, normalised, scaled ─▶ gates (B, L, k)

Legend: B batch, L length, D hidden size, E experts, G groups, k experts a token.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenmill_trainer.model.config import ModelConfig, MoEConfig

SMALLEST_SUM = 1e-20
"""Added to the sum that gates are divided by: sigmoids may all be 0 in fp32."""


class RouterReport(NamedTuple):
    """What one layer's router did with one micro-batch, for the loss and for balancing.

    A value that is returned, not a state that is left behind: forwards that activation checkpointing repeats then count
    once, and FSDP and torch.compile see every tensor that leaves a block.
    """

    load_E: Tensor
    """Tokens that each expert got, int64."""
    loss: Tensor
    """Weighted balancing loss and z-loss, the mean over the micro-batch's tokens: an fp32 scalar."""


class Router(nn.Module):
    """A linear layer in fp32 whose outputs choose. Published as `gate`, which its parameters are therefore named."""

    balance_bias: Tensor | None
    """(E,) fp32, added to the scores that choose, never to the gates (arXiv:2412.19437). No gradient moves it; see
    `balance.py`. A buffer, so checkpoints hold it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.moe is not None, "a router is built where `moe` is set"
        self.config = config.moe
        self.weight = nn.Parameter(torch.empty(config.moe.num_experts, config.hidden_size))
        nn.init.normal_(self.weight, std=config.init_std)
        has_bias = config.moe.bias_update_rate is not None
        self.register_buffer("balance_bias", torch.zeros(config.moe.num_experts) if has_bias else None)
        self.step_load_E: Tensor | None = None
        """Loads of the training micro-batches since the last step, int64."""

    def forward(self, x_BLD: Tensor) -> tuple[Tensor, Tensor, RouterReport]:
        """Gates (B, L, k) in fp32, experts (B, L, k) in int64, and the report."""
        logits_BLE = F.linear(x_BLD.float(), self.weight.float())
        scores_BLE = logits_BLE.sigmoid() if self.config.router == "sigmoid" else logits_BLE.softmax(-1)
        experts_BLk = self._choose(scores_BLE.detach())
        gates_BLk = scores_BLE.gather(-1, experts_BLk)
        if self.config.normalise_gates:
            gates_BLk = gates_BLk / (gates_BLk.sum(-1, keepdim=True) + SMALLEST_SUM)
        load_BE = loads(experts_BLk, self.config.num_experts)
        loss = router_loss(self.config, logits_BLE, scores_BLE, load_BE)
        return gates_BLk * self.config.gate_scale, experts_BLk, RouterReport(load_BE.sum(0), loss)

    def _choose(self, scores_BLE: Tensor) -> Tensor:
        if self.balance_bias is not None:
            scores_BLE = scores_BLE + self.balance_bias
        if self.config.num_groups > 1:
            scores_BLE = keep_best_groups(scores_BLE, self.config)
        return scores_BLE.topk(self.config.experts_per_token, -1).indices


def keep_best_groups(scores_BLE: Tensor, config: MoEConfig) -> Tensor:
    """The scores, -inf outside of the best `groups_per_token` groups (arXiv:2405.04434).

    A group is as good as its best expert under softmax (DeepSeek-V2), as its best two together under sigmoid (V3).
    """
    scores_BLGe = scores_BLE.view(*scores_BLE.shape[:-1], config.num_groups, -1)
    num_counted = 2 if config.router == "sigmoid" else 1
    group_scores_BLG = scores_BLGe.topk(num_counted, -1).values.sum(-1)
    best = group_scores_BLG.topk(config.groups_per_token, -1).indices
    kept_BLG = torch.zeros_like(group_scores_BLG, dtype=torch.bool).scatter(-1, best, True)
    return scores_BLGe.masked_fill(~kept_BLG.unsqueeze(-1), float("-inf")).flatten(-2)


def loads(experts_BLk: Tensor, num_experts: int) -> Tensor:
    """(B, E) int64: how many of a row's tokens each expert gets. Integers, so the sum has no order to depend on."""
    all_experts = torch.arange(num_experts, device=experts_BLk.device)
    return (experts_BLk.flatten(1).unsqueeze(-1) == all_experts).sum(1)


def router_loss(config: MoEConfig, logits_BLE: Tensor, scores_BLE: Tensor, load_BE: Tensor) -> Tensor:
    """`aux_loss` · balancing loss + `z_loss` · z-loss, the mean over tokens."""
    loss = logits_BLE.new_zeros(())
    if config.aux_loss > 0:
        probabilities_BLE = scores_BLE / (scores_BLE.sum(-1, keepdim=True) + SMALLEST_SUM)
        if config.aux_loss_over == "micro_batch":
            probabilities_BLE, load_BE = probabilities_BLE.flatten(0, 1).unsqueeze(0), load_BE.sum(0, keepdim=True)
        loss = loss + config.aux_loss * balance_loss(probabilities_BLE, load_BE)
    if config.z_loss > 0:
        loss = loss + config.z_loss * logits_BLE.logsumexp(-1).square().mean()
    return loss


def balance_loss(probabilities_BLE: Tensor, load_BE: Tensor) -> Tensor:
    """E · Σ_e (share of the row's tokens sent to e) · (mean probability of e), averaged over rows; 1 when even.

    The formula of Switch Transformer (arXiv:2101.03961); shares carry no gradient.
    """
    share_BE = load_BE / load_BE.sum(-1, keepdim=True)
    return load_BE.shape[-1] * (share_BE * probabilities_BLE.mean(1)).sum(-1).mean()
