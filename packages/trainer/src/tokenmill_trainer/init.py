"""Start weights: a pure function of (seed, parameter name), so no layout of ranks, shards or stages changes them."""

import hashlib
import math

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from tokenmill_trainer.model import Decoder, ModelConfig

RESIDUAL_OUTPUTS = ("o_proj.weight", "down_proj.weight")


def initial_weight(config: ModelConfig, seed: int, name: str, shape: torch.Size) -> Tensor:
    """The whole fp32 start value of parameter `name`, on the CPU.

    Norm weights are 1; matrices are normal with `init_std`, those that write to the residual stream scaled by
    1 / sqrt(2 · num_layers) as in GPT-2, so that the stream's variance does not grow with depth.
    """
    if len(shape) == 1:
        return torch.ones(shape)
    scale = 1 / math.sqrt(2 * config.num_layers) if name.endswith(RESIDUAL_OUTPUTS) else 1.0
    generator = torch.Generator().manual_seed(_seed_of(seed, name))
    return torch.empty(shape).normal_(0.0, config.init_std * scale, generator=generator)


def _seed_of(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8]) >> 1


@torch.no_grad()
def initialize_weights(model: Decoder, seed: int) -> None:
    """Fill the parameters of `model`, sharded or not; each rank keeps only its part of each tensor."""
    for name, parameter in model.named_parameters():
        value = initial_weight(model.config, seed, name, parameter.shape)
        if isinstance(parameter, DTensor):
            mesh, placements = parameter.device_mesh, parameter.placements
            part = distribute_tensor(value.to(mesh.device_type), mesh, placements, src_data_rank=None)
            parameter.to_local().copy_(part.to_local())
        else:
            parameter.copy_(value)
