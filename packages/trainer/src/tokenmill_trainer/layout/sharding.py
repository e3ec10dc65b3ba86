"""How a model lies over the ranks: ZeRO stages 0 to 3, and what a step has to do about it.

    stage   parameters          gradients                         optimizer state
    0       whole               summed once a step, whole         whole
    1       whole in a step     summed once a step, sharded       sharded
    2       whole in a step     summed each micro-batch, sharded  sharded
    3       gathered by block   summed each micro-batch, sharded  sharded

What is shared out is FSDP2's; where nothing is (stage 0, or one process) the model lies whole on its rank. Gradients
are sums over ranks, never means: the loss of each micro-batch is already divided by the tokens of the whole global
batch.
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

from tokenmill_trainer.layout.config import DTYPES, LayoutConfig
from tokenmill_trainer.layout.mesh import REPLICATE, SHARD, device_mesh
from tokenmill_trainer.layout.whole import Whole, whole
from tokenmill_trainer.model import Decoder, ModelConfig, build_on_meta
from tokenmill_trainer.model.init import initialize_weights
from tokenmill_trainer.world import World

PrepareBlocks = Callable[[Sequence[nn.Module]], None]
"""What is done to the blocks of a model before they are sharded (`blocks.prepare_blocks`)."""


def build_model(
    config: ModelConfig, world: World, prepare: PrepareBlocks, *, seed: int, layout: LayoutConfig
) -> Decoder:
    """The decoder laid out over `world`, with its start weights: fp32 masters, computing in `layout.precision`."""
    model = build_on_meta(config)
    blocks = list(model.layers)
    prepare(blocks)
    lay_over(model, blocks, world, layout, lambda device: model.to_empty(device=device))
    initialize_weights(model, seed)
    return model


def lay_over(
    model: nn.Module,
    blocks: Sequence[nn.Module],
    world: World,
    layout: LayoutConfig,
    place: Callable[[torch.device], object],
) -> None:
    """Share `model` out over the ranks, or let it lie whole on each; `place` brings its tensors to a device."""
    mesh, is_whole = device_mesh(world, layout), layout.is_whole(world.size)
    if not is_whole:
        shard(model, blocks, mesh, layout)
    place(torch.device("cpu") if layout.cpu_offload else world.device)
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = buffer.to(world.device)  # offloaded or not, buffers take part in the forward
    if is_whole:
        Whole(model, DTYPES[layout.precision], mesh.get_group(REPLICATE) if world.size > 1 else None)


def shard(model: nn.Module, blocks: Sequence[nn.Module], mesh: DeviceMesh, layout: LayoutConfig) -> None:
    """Apply FSDP2 to each block and to the rest (embedding, last norm, head).

    Inputs are not cast at block borders: the rotary tables travel there in fp32 and must arrive so.
    """
    precision = MixedPrecisionPolicy(
        param_dtype=DTYPES[layout.precision], reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    offload = CPUOffloadPolicy(pin_memory=mesh.device_type != "cpu") if layout.cpu_offload else OffloadPolicy()
    for module in (*blocks, model):
        sharded = fully_shard(
            module,
            mesh=mesh if mesh[REPLICATE].size() > 1 else mesh[SHARD],
            mp_policy=precision,
            offload_policy=offload,
            reshard_after_forward=layout.zero_stage == 3,
        )
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)


def replicas(model: nn.Module) -> dist.ProcessGroup | None:
    """The ranks that hold the same weights whole; none where they are shared out, or there is but one."""
    return None if isinstance(model, FSDPModule) else whole(model).replicas


def prepare_backward(model: nn.Module, layout: LayoutConfig, is_last: bool) -> None:
    """Say whether the backward that comes is the step's last: when gradients travel and parameters are let go."""
    if isinstance(model, FSDPModule):
        model.set_is_last_backward(is_last)
        model.set_requires_gradient_sync(is_last or layout.zero_stage >= 2)
        model.set_requires_all_reduce(is_last)
        model.set_reshard_after_backward(is_last or layout.zero_stage == 3)
    else:
        whole(model).prepare_backward(is_last)


def finish_backward(model: nn.Module) -> None:
    """After each backward: once it was the step's last, gradients are sums over ranks, and parameters fp32 masters."""
    if not isinstance(model, FSDPModule):
        whole(model).finish_backward()


def release_parameters(model: nn.Module) -> None:
    """Let go of whole parameters, or of their copies, that a forward without backward has made."""
    if isinstance(model, FSDPModule):
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
    else:
        whole(model).release()
