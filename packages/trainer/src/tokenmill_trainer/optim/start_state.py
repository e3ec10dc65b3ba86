"""What an optimizer remembers before its first step: zeros, there from the start, so that saving a run only reads."""

import torch
from torch import Tensor


def adamw_state(parameter: Tensor) -> dict[str, Tensor]:
    """Step 0 and both moments, laid out as `parameter` is: what fused AdamW makes in its first step."""
    return {
        "step": torch.zeros((), device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }
