"""Start weights: a pure function of (seed, parameter name), so no layout of ranks, shards or stages changes them."""

import hashlib
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from tokenmill_trainer.model.config import ModelConfig
from tokenmill_trainer.model.decoder import Decoder
from tokenmill_trainer.model.mup import init_scale

RESIDUAL_OUTPUTS = ("o_proj.weight", "down_proj.weight")
TRUNCATED_AT = 3.0
"""Standard deviations."""


def initial_weight(config: ModelConfig, seed: int, name: str, shape: torch.Size) -> Tensor:
    """The whole fp32 start value of parameter `name`, on the CPU.

    Norms start as the identity, biases at 0. Matrices are normal with `init_std`, those that write to the residual
    stream scaled by 1 / sqrt(2 · num_layers) as in GPT-2, so that the stream's variance does not grow with depth.
    """
    if name.endswith("bias"):
        return torch.zeros(shape)
    if len(shape) == 1:
        return torch.zeros(shape) if config.norm_offset else torch.ones(shape)
    is_output = config.residual_scaling and name.endswith(RESIDUAL_OUTPUTS)
    std = config.init_std * (1 / math.sqrt(2 * config.num_layers) if is_output else 1.0) * init_scale(config, name)
    generator = torch.Generator().manual_seed(_seed_of(seed, name))
    if config.init == "gpt2":
        return torch.empty(shape).normal_(0.0, std, generator=generator)
    limit = TRUNCATED_AT * std
    return torch.nn.init.trunc_normal_(torch.empty(shape), 0.0, std, -limit, limit, generator=generator)


def _seed_of(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8]) >> 1


def initialize_weights(model: Decoder, seed: int) -> None:
    """Fill the parameters of `model`, sharded or not, with start weights; buffers that are saved become 0."""
    parameters = dict(model.named_parameters())

    def value_of(name: str, shape: torch.Size) -> Tensor:
        return initial_weight(model.config, seed, name, shape) if name in parameters else torch.zeros(shape)

    fill(model, value_of)


@torch.no_grad()
def fill(model: nn.Module, value_of: Callable[[str, torch.Size], Tensor]) -> None:
    """Set each tensor of the model's state to `value_of(name, whole shape)`; each rank keeps only its part of it."""
    for name, target in model.state_dict().items():
        value = value_of(name, target.shape)
        if isinstance(target, DTensor):
            mesh, placements = target.device_mesh, target.placements
            part = distribute_tensor(value.to(mesh.device_type), mesh, placements, src_data_rank=None)
            target.to_local().copy_(part.to_local())
        else:
            target.copy_(value)
