"""Who attends to whom: each token to those before it, and where documents are kept apart only to those of its own.

    positions (B, L), 0 where a document begins ─ document_mask ─▶ (B, 1, L, L) ─ attend ─▶ in every layer

Legend: B batch, L length, H query heads, K key/value heads, d head size.
"""

import torch.nn.functional as F
from torch import Tensor


def document_mask(positions_BL: Tensor) -> Tensor:
    """(B, 1, L, L): whether token i attends to token j, that is j ≤ i and no document begins in between."""
    document_BL = (positions_BL == 0).cumsum(1)
    same_BLL = document_BL.unsqueeze(2) == document_BL.unsqueeze(1)
    return same_BLL.tril().unsqueeze(1)


def attend(q_BHLd: Tensor, k_BKLd: Tensor, v_BKLd: Tensor, documents: Tensor | None = None) -> Tensor:
    """Causal attention, (B, H, L, d); each group of H / K query heads shares a key/value head (arXiv:2305.13245).

    `documents`: the `document_mask` of the rows, none where attention crosses documents. A single query attends to all
    keys.
    """
    causal = documents is None and q_BHLd.shape[2] > 1
    assert not causal or q_BHLd.shape[2] == k_BKLd.shape[2], "after the first call a cache takes one token at a time"
    grouped = q_BHLd.shape[1] != k_BKLd.shape[1]
    return F.scaled_dot_product_attention(
        q_BHLd, k_BKLd, v_BKLd, attn_mask=documents, is_causal=causal, enable_gqa=grouped
    )
