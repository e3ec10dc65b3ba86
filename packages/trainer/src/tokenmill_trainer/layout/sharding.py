"""How a model lies over the ranks: ZeRO stages 0 to 3 by FSDP2.

    stage   parameters          gradients                       optimizer state
    0       whole               summed once a step, whole       whole
    1       whole in a step     summed once a step, sharded     sharded
    2       whole in a step     summed each micro-batch, sharded  sharded
    3       gathered by block   summed each micro-batch, sharded  sharded

Gradients are sums over ranks, never means: the loss of each micro-batch is already divided by the tokens of the whole
global batch.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from tokenmill_trainer.model import Decoder, ModelConfig, build_on_meta
from tokenmill_trainer.model.init import initialize_weights
from tokenmill_trainer.world import World

ZeroStage = Literal[0, 1, 2, 3]
Precision = Literal["fp32", "bf16", "fp16", "fp8"]
DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.bfloat16,
}
"""Of weights and activations in forward and backward; in fp8 some products round them further (`fp8.py`)."""
PrepareBlocks = Callable[[Sequence[nn.Module]], None]
"""What is done to the blocks of a model before they are sharded (`blocks.prepare_blocks`)."""


def build_model(
    config: ModelConfig, world: World, prepare: PrepareBlocks, *, seed: int, zero_stage: ZeroStage, precision: Precision
) -> Decoder:
    """The decoder laid out over `world`, with its start weights: fp32 masters, computing in `precision`."""
    model = build_on_meta(config)
    blocks = list(model.layers)
    prepare(blocks)
    shard(model, blocks, device_mesh(world, zero_stage), zero_stage, precision)
    model.to_empty(device=world.device)
    initialize_weights(model, seed)
    return model


def device_mesh(world: World, zero_stage: ZeroStage) -> DeviceMesh:
    """Ranks in one line along which tensors are sharded; for stage 0 along which they are replicated."""
    if zero_stage == 0:
        return init_device_mesh(world.device.type, (world.size, 1), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh(world.device.type, (world.size,), mesh_dim_names=("shard",))


def shard(
    model: nn.Module, blocks: Sequence[nn.Module], mesh: DeviceMesh, zero_stage: ZeroStage, precision: Precision
) -> None:
    """Apply FSDP2 to each block and to the rest (embedding, last norm, head).

    Inputs are not cast at block borders: the rotary tables travel there in fp32 and must arrive so.
    """
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[precision], reduce_dtype=torch.float32, cast_forward_inputs=False)
    for module in (*blocks, model):
        sharded = fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=zero_stage == 3)
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)


def prepare_backward(model: nn.Module, zero_stage: ZeroStage, is_last: bool) -> None:
    """Say whether the backward that comes is the step's last: when gradients travel and parameters are let go."""
    assert isinstance(model, FSDPModule)
    model.set_is_last_backward(is_last)
    model.set_requires_gradient_sync(is_last or zero_stage >= 2)
    model.set_reshard_after_backward(is_last or zero_stage == 3)


def release_parameters(model: nn.Module) -> None:
    """Let go of whole parameters that a forward without backward has gathered."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def global_gradient_norm(model: nn.Module) -> torch.Tensor:
    """The 2-norm of all gradients, whichever rank holds them: one fp64 scalar, the same on all ranks. Collective.

    Squares are summed in fp64: torch's fp32 norm of a million values is off by 2e-5 on a CPU, and by how much depends
    on how they are sharded.
    """
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norms = [torch.linalg.vector_norm(gradient, dtype=torch.float64) for gradient in gradients]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def scale_gradients(model: nn.Module, factor: float) -> None:
    """Multiply all gradients by `factor`."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(factor)
