"""Multi-head latent attention: what is kept of a token is one small vector (DeepSeek-V2, arXiv:2405.04434).

    x ─▶ q_a ─ norm ─▶ q_b ─▶ q (H, n + r)          each head's query: n numbers without position, r that positions turn
    x ─▶ kv_a ─┬─ norm ─▶ latent (c) ─▶ kv_b ─▶ k (H, n), v (H, v)
               └─ rotate ─▶ k (r), one for all heads

A cache holds latent and turned key alone, c + r numbers a token. A new token then attends to the latents themselves:
q · (W_k c) = (W_kᵀ q) · c, so its query is moved into their space instead of every old key out of it.

Legend: B batch, L length, D hidden size, H heads, n, r and v sizes of the parts of a head, c size of the latent.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenmill_trainer.model.attention import attend
from tokenmill_trainer.model.config import ModelConfig
from tokenmill_trainer.model.kv_cache import KeyValueCache
from tokenmill_trainer.model.linear import Linear
from tokenmill_trainer.model.masks import Mask
from tokenmill_trainer.model.norms import RMSNorm
from tokenmill_trainer.model.rotary import Rope, rotate

LATENT_NORM_EPS = 1e-6
"""Of the norms of latents; DeepSeek's models have it beside, not by, their `rms_norm_eps`."""


class LatentAttention(nn.Module):
    """Projections through latents around `attend`. Parameters are named as DeepSeek publishes them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.mla is not None, "the config has checked it"
        self.config, self.mla = config, config.mla
        self.query_parts = [config.mla.nope_head_dim, config.mla.rope_head_dim]
        self.kept_parts = [config.mla.kv_rank, config.mla.rope_head_dim]
        self.made_parts = [config.mla.nope_head_dim, config.mla.v_head_dim]
        width, rank, heads = config.hidden_size, config.mla.q_rank, config.num_heads
        query_size = heads * config.head_size
        if rank is None:
            self.q_proj = Linear(width, query_size, bias=False)
        else:
            self.q_a_proj = Linear(width, rank, bias=False)
            self.q_a_layernorm = RMSNorm(rank, LATENT_NORM_EPS)
            self.q_b_proj = Linear(rank, query_size, bias=False)
        self.kv_a_proj_with_mqa = Linear(width, sum(self.kept_parts), bias=False)
        self.kv_a_layernorm = RMSNorm(self.mla.kv_rank, LATENT_NORM_EPS)
        self.kv_b_proj = Linear(self.mla.kv_rank, heads * sum(self.made_parts), bias=False)
        self.o_proj = Linear(heads * self.mla.v_head_dim, width, bias=False)

    def forward(
        self, x_BLD: Tensor, rope: Rope | None, mask: Mask | None, cache: KeyValueCache | None, layer: int
    ) -> Tensor:
        """(B, L, D) to (B, L, D). With a cache the L new positions also see the earlier ones."""
        assert rope is not None, "the config has checked it"
        q_BHLn, q_BHLr = self._queries(x_BLD, rope)
        kept_B1Sm = self._latents(x_BLD, rope)
        if cache is not None:
            # One tensor, so that attention reads latent and turned key where they lie; nothing is left for the other.
            kept_B1Sm, _ = cache.append(layer, kept_B1Sm, kept_B1Sm[..., :0])
        attend_by = self._attend_to_heads if cache is None or x_BLD.shape[1] > 1 else self._attend_to_latents
        y_BHLv = attend_by(q_BHLn, q_BHLr, kept_B1Sm, mask)
        return self.o_proj(y_BHLv.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _queries(self, x_BLD: Tensor, rope: Rope) -> tuple[Tensor, Tensor]:
        """The parts of each head's query: (B, H, L, n), and (B, H, L, r) turned."""
        direct = self.mla.q_rank is None
        q: Tensor = self.q_proj(x_BLD) if direct else self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x_BLD)))
        q_BHLd = q.view(*q.shape[:2], self.config.num_heads, -1).transpose(1, 2)
        q_BHLn, q_BHLr = torch.split(q_BHLd, self.query_parts, -1)
        return q_BHLn, rotate(q_BHLr, rope)

    def _latents(self, x_BLD: Tensor, rope: Rope) -> Tensor:
        """What a cache keeps: the normalised latent beside the turned key, (B, 1, L, c + r)."""
        both_B1Lm = self.kv_a_proj_with_mqa(x_BLD).unsqueeze(1)
        latent, key = torch.split(both_B1Lm, self.kept_parts, -1)
        return torch.cat((self.kv_a_layernorm(latent), rotate(key, rope)), -1)

    def _attend_to_heads(self, q_BHLn: Tensor, q_BHLr: Tensor, kept_B1Sm: Tensor, mask: Mask | None) -> Tensor:
        """Every head's keys and values made from the latents: (B, H, L, v)."""
        latent, key_r = torch.split(kept_B1Sm, self.kept_parts, -1)
        kv_BSH: Tensor = self.kv_b_proj(latent.squeeze(1))
        kv_BHSd = kv_BSH.view(*kv_BSH.shape[:2], self.config.num_heads, -1).transpose(1, 2)
        k_BHSn, v_BHSv = torch.split(kv_BHSd, self.made_parts, -1)
        k_BHSd = torch.cat((k_BHSn, key_r.expand(-1, self.config.num_heads, -1, -1)), -1)
        # Fused kernels want values as large as keys; without one every score of every head would lie in memory.
        v_BHSd = F.pad(v_BHSv, (0, max(0, self.config.head_size - self.mla.v_head_dim)))
        y_BHLd = self._attend(torch.cat((q_BHLn, q_BHLr), -1), k_BHSd, v_BHSd, mask)
        return y_BHLd[..., : self.mla.v_head_dim]

    def _attend_to_latents(self, q_BHLn: Tensor, q_BHLr: Tensor, kept_B1Sm: Tensor, mask: Mask | None) -> Tensor:
        """The same with the queries moved into the latents' space, and the result out of it: one key for all heads."""
        weight_Hdc = self.kv_b_proj.weight.to(q_BHLn.dtype).view(self.config.num_heads, -1, self.mla.kv_rank)
        to_keys_Hnc, to_values_Hvc = torch.split(weight_Hdc, self.made_parts, 1)
        q_BHLm = torch.cat((q_BHLn @ to_keys_Hnc, q_BHLr), -1)
        y_BHLm = self._attend(q_BHLm, kept_B1Sm, kept_B1Sm, mask)
        return y_BHLm[..., : self.mla.kv_rank] @ to_values_Hvc.transpose(1, 2)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None) -> Tensor:
        return attend(q, k, v, mask, scale=self.config.softmax_scale, soft_cap=self.config.attention_soft_cap)
