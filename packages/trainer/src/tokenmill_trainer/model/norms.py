"""Norms over the last dimension, with mean and variance taken in fp32 whatever the input is."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenmill_trainer.model.config import ModelConfig
from tokenmill_trainer.model.cpu import functions
from tokenmill_trainer.model.cpu.arrays import takes


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight (arXiv:1910.07467); with `offset` the factor is 1 + weight, as in Gemma."""

    def __init__(self, size: int, eps: float, offset: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size) if offset else torch.ones(size))
        self.eps = eps
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        # bf16 cannot tell 1 + 0.001 from 1, so the sum is made in fp32.
        weight = 1 + self.weight.float() if self.offset else self.weight
        if takes(x, weight) and x.ndim > 1 and x.shape[-1] == len(weight):
            return functions.rms_norm(x, weight, self.eps)
        if self.offset:
            return F.rms_norm(x.float(), (x.shape[-1],), weight, self.eps).to(x.dtype)
        return F.rms_norm(x, (x.shape[-1],), weight, self.eps)


def make_norm(config: ModelConfig) -> nn.Module:
    """The norm of the residual stream."""
    if config.norm == "layernorm":
        return nn.LayerNorm(config.hidden_size, config.norm_eps)
    return RMSNorm(config.hidden_size, config.norm_eps, config.norm_offset)
