"""The training loss: cross-entropy summed over counted tokens; who divides by what is the caller's business."""

import torch.nn.functional as F
from torch import Tensor, nn

IGNORED = -100
"""A label with this value is not counted and gives no gradient."""


def token_loss_sum(model: nn.Module, inputs: Tensor, labels: Tensor, positions: Tensor | None = None) -> Tensor:
    """Cross-entropy in fp32 nats, summed over the counted labels: (B, L) ids, labels and positions to a scalar."""
    logits_BLV = model(inputs, positions_BL=positions)
    return F.cross_entropy(logits_BLV.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum")
