"""Attention by FlexAttention, on CUDA: a fused kernel that leaves out blocks of keys which no query of a block sees.

    documents, window ─ block_mask ─▶ BlockMask, once for all layers of a kind ─ flex_attend ─▶ in every layer

It computes what `attention.attend` does with a plain mask, in memory that grows with L rather than L²
(arXiv:2412.05496). Legend: B batch, L length, H query heads, K key/value heads, d head size.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention


def block_mask(
    length: int, device: torch.device, *, window: int | None = None, document_BL: Tensor | None = None
) -> BlockMask:
    """What `masks.attention_mask` says, by blocks of 128 × 128; `document_BL` is each token's document."""

    def visible(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        del head
        seen = query >= key
        if window is not None:
            seen = seen & (query - key < window)
        if document_BL is not None:
            seen = seen & (document_BL[row, query] == document_BL[row, key])
        return seen

    batch = None if document_BL is None else len(document_BL)
    make = _compiled(create_block_mask) if device.type == "cuda" else create_block_mask
    mask: BlockMask = make(visible, batch, None, length, length, device=device)
    return mask


def flex_attend(
    q_BHLd: Tensor, k_BKLd: Tensor, v_BKLd: Tensor, mask: BlockMask, scale: float | None, soft_cap: float | None
) -> Tensor:
    """Attention as `attend` has it, (B, H, L, d of v)."""
    attention: Any = _compiled(flex_attention) if q_BHLd.is_cuda else flex_attention
    y_BHLd: Tensor = attention(
        q_BHLd,
        k_BKLd,
        v_BKLd,
        score_mod=None if soft_cap is None else _capped_by(soft_cap),
        block_mask=mask,
        scale=scale,
        enable_gqa=q_BHLd.shape[1] != k_BKLd.shape[1],
    )
    return y_BHLd


def _capped_by(soft_cap: float) -> Callable[..., Tensor]:
    def capped(score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        del row, head, query, key
        return soft_cap * torch.tanh(score / soft_cap)

    return capped


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Without its compiler FlexAttention writes all scores out. Compiled when first used, as that takes seconds."""
    return torch.compile(function)
