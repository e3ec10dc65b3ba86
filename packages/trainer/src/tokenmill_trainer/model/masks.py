"""Who attends to whom: each token to those before it, and its own document and sliding window may end that earlier.

    positions (B, L), 0 where a document begins ─┐
    window of some layers                       ─┴▶ mask, made once ─ attend ─▶ in each of these layers

Legend: B batch, L length of the queries, S of the keys.
"""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from tokenmill_trainer.model.config import ModelConfig
from tokenmill_trainer.model.flex import block_mask

Mask = Tensor | BlockMask


def masks_by_window(
    config: ModelConfig, length: int, device: torch.device, start: int = 0, positions_BL: Tensor | None = None
) -> dict[int | None, Mask | None]:
    """The mask of each window that layers have; none where `attend` needs none.

    On CUDA it is a mask of blocks wherever SDPA has no fused kernel for what is asked.
    """
    masks: dict[int | None, Mask | None] = {}
    document_BL = None if positions_BL is None else document_of(positions_BL)
    for window in {config.window_of(layer) for layer in range(config.num_layers)}:
        is_plain = sees_all_before(start + length, window, document_BL) and config.attention_soft_cap is None
        if device.type == "cuda" and start == 0 and length > 1 and not is_plain:
            masks[window] = block_mask(length, device, window=window, document_BL=document_BL)
        else:
            masks[window] = attention_mask(length, device, start=start, window=window, document_BL=document_BL)
    return masks


def sees_all_before(num_keys: int, window: int | None, document_BL: Tensor | None) -> bool:
    """Whether neither a window nor a document ends what a token sees."""
    return document_BL is None and (window is None or window >= num_keys)


def attention_mask(
    length: int,
    device: torch.device,
    *,
    start: int = 0,
    window: int | None = None,
    document_BL: Tensor | None = None,
) -> Tensor | None:
    """Whether query i, at `start` + i, attends to key j: (L, S), or (B, 1, L, S) with documents; S = start + L.

    None: to all before it. `window`: only to the last so many keys, its own included. `document_BL`: only to keys of
    its own document.
    """
    end = start + length
    if sees_all_before(end, window, document_BL) and (start == 0 or length == 1):
        return None
    queries, keys = torch.arange(start, end, device=device)[:, None], torch.arange(end, device=device)
    mask_LS = keys <= queries
    if window is not None:
        mask_LS &= keys > queries - window
    if document_BL is None:
        return mask_LS
    return (document_BL.unsqueeze(2) == document_BL.unsqueeze(1)).unsqueeze(1) & mask_LS


def document_of(positions_BL: Tensor) -> Tensor:
    """(B, L): the number of each token's document in its row; one begins where the position is 0."""
    return (positions_BL == 0).cumsum(1)
