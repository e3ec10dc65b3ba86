"""Attention: what each token takes from those that its mask lets it see, and the projections around that.

    x ─ project ─▶ q, k, v ─ normalise, rotate ─▶ (cache) ─ attend ─▶ y ─ project ─▶

Legend: B batch, L length of the queries, S of the keys, D hidden size, H query heads, K key/value heads, d head size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from tokenmill_trainer.model.config import ModelConfig
from tokenmill_trainer.model.cpu import attention as cpu_attention
from tokenmill_trainer.model.flex import flex_attend
from tokenmill_trainer.model.kv_cache import KeyValueCache
from tokenmill_trainer.model.linear import Linear, linear_each
from tokenmill_trainer.model.masks import Mask
from tokenmill_trainer.model.norms import RMSNorm
from tokenmill_trainer.model.rotary import Rope, rotate


def attend(
    q_BHLd: Tensor,
    k_BKSd: Tensor,
    v_BKSd: Tensor,
    mask: Mask | None = None,
    *,
    scale: float | None = None,
    soft_cap: float | None = None,
    rope: Rope | None = None,
) -> Tensor:
    """Attention, (B, H, L, d of v); each group of H / K query heads shares a key/value head (arXiv:2305.13245).

    `mask`: of `masks_by_window`; none: each query sees all keys before it. Scores are multiplied by `scale`
    (none: 1 / sqrt(d)), and capped at ± `soft_cap` smoothly (Gemma 2, arXiv:2408.00118). `rope`: queries and keys have
    yet to be turned by it.
    """
    own_scale = q_BHLd.shape[-1] ** -0.5 if scale is None else scale
    causal = mask is None and q_BHLd.shape[2] > 1
    on_cpu = causal and soft_cap is None and own_scale > 0 and cpu_attention.takes(q_BHLd, k_BKSd, v_BKSd)
    if rope is not None and not (on_cpu and cpu_attention.turns(q_BHLd, *rope)):
        q_BHLd, k_BKSd, rope = rotate(q_BHLd, rope), rotate(k_BKSd, rope), None
    if isinstance(mask, BlockMask):
        return flex_attend(q_BHLd, k_BKSd, v_BKSd, mask, scale, soft_cap)
    if soft_cap is not None:
        return _capped(q_BHLd, k_BKSd, v_BKSd, mask, own_scale, soft_cap)
    if on_cpu:
        return cpu_attention.causal_attention(q_BHLd, k_BKSd, v_BKSd, own_scale, rope)
    grouped = q_BHLd.shape[1] != k_BKSd.shape[1]
    return F.scaled_dot_product_attention(
        q_BHLd, k_BKSd, v_BKSd, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
    )


def _capped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, soft_cap: float) -> Tensor:
    """Attention with its scores written out, since no fused kernel of SDPA caps them."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores_BHLS = soft_cap * torch.tanh(q @ k.transpose(2, 3) * (scale / soft_cap))
    if mask is None:
        length, keys = scores_BHLS.shape[2:]
        mask = torch.ones(length, keys, dtype=torch.bool, device=q.device).tril(keys - length)
    scores_BHLS = scores_BHLS.masked_fill(~mask, float("-inf"))
    return scores_BHLS.softmax(-1, dtype=torch.float32).to(v.dtype) @ v


class Attention(nn.Module):
    """Projections around `attend`: grouped-query attention."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        bias, output_bias = config.attention_bias != "none", config.attention_bias == "all"
        query_size, kv_size = config.num_heads * config.head_size, config.kv_heads * config.head_size
        self.q_proj = Linear(config.hidden_size, query_size, bias=bias)
        self.k_proj = Linear(config.hidden_size, kv_size, bias=bias)
        self.v_proj = Linear(config.hidden_size, kv_size, bias=bias)
        self.o_proj = Linear(query_size, config.hidden_size, bias=output_bias)
        self.q_norm = self._norm(query_size)
        self.k_norm = self._norm(kv_size)

    def _norm(self, full_size: int) -> RMSNorm | None:
        if self.config.qk_norm == "none":
            return None
        size = full_size if self.config.qk_norm == "full" else self.config.head_size
        return RMSNorm(size, self.config.norm_eps, self.config.norm_offset)

    def forward(
        self, x_BLD: Tensor, rope: Rope | None, mask: Mask | None, cache: KeyValueCache | None, layer: int
    ) -> Tensor:
        """(B, L, D) to (B, L, D). With a cache the L new positions also see the earlier ones."""
        q_BLQ, k_BLK, v_BLK = linear_each(x_BLD, (self.q_proj, self.k_proj, self.v_proj))
        q_BHLd, k_BKLd = self._heads(q_BLQ, self.q_norm), self._heads(k_BLK, self.k_norm)
        v_BKLd = self._heads(v_BLK, None)
        if cache is not None:
            if rope is not None:
                q_BHLd, k_BKLd, rope = rotate(q_BHLd, rope), rotate(k_BKLd, rope), None
            k_BKLd, v_BKLd = cache.append(layer, k_BKLd, v_BKLd)
        scale, soft_cap = self.config.softmax_scale, self.config.attention_soft_cap
        y_BHLd = attend(q_BHLd, k_BKLd, v_BKLd, mask, scale=scale, soft_cap=soft_cap, rope=rope)
        return self.o_proj(y_BHLd.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _heads(self, x: Tensor, norm: RMSNorm | None) -> Tensor:
        """(B, L, heads · d) to (B, heads, L, d), normalised in the one shape or the other."""
        per_head = self.config.qk_norm == "head"
        if norm is not None and not per_head:
            x = norm(x)
        x_BLHd = x.view(*x.shape[:-1], -1, self.config.head_size)
        if norm is not None and per_head:
            x_BLHd = norm(x_BLHd)
        return x_BLHd.transpose(1, 2)
