"""A model of the user's own, laid out over the ranks as the decoder is.

    nn.Module ─ check ─▶ rank 0's weights on every rank ─▶ blocks ─ prepare, shard ─▶ the same module

Rank 0's weights are everyone's, rather than differing ones refused: a module is made before the ranks have anything in
common, mostly from a generator that each seeded alike or not at all, and a copy costs no more than the comparison.
"""

import re
import warnings
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from tokenmill_core.errors import ConfigError
from tokenmill_trainer.layout.config import LayoutConfig
from tokenmill_trainer.layout.sharding import PrepareBlocks, lay_over
from tokenmill_trainer.world import World


def lay_out(
    model: nn.Module,
    blocks: Sequence[nn.Module],
    world: World,
    prepare: PrepareBlocks,
    layout: LayoutConfig,
) -> nn.Module:
    """`model` itself, its weights those of rank 0, `blocks` prepared and all of it sharded over `world`. Collective.

    Errors: `ConfigError` on every rank where the weights are no fp32 masters, or other ones than rank 0 has.
    """
    world.on_each(lambda: check_masters(model))
    copy_from_rank_0(model, world)
    prepare(blocks)
    lay_over(model, blocks, world, layout, model.to)
    return model


def check_masters(model: nn.Module) -> None:
    """The parameters can be what the optimizer updates: in memory and in fp32, or `ConfigError`."""
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise ConfigError(f"model: {name} has no values (it is on the meta device); give a model with weights")
        if parameter.dtype != torch.float32:
            raise ConfigError(
                f"model: {name} is {parameter.dtype}; weights are updated in fp32: give model.float(), and say what to "
                "compute in by training.precision"
            )


@torch.no_grad()
def copy_from_rank_0(model: nn.Module, world: World) -> None:
    """Give every rank the parameters and buffers that rank 0 has. Collective.

    Errors: `ConfigError` on every rank where they are not of the same names and shapes.
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    everywhere = world.gather({name: tuple(tensor.shape) for name, tensor in tensors.items()})
    for rank, shapes in enumerate(everywhere):
        differing = sorted(name for name, _ in shapes.items() ^ everywhere[0].items())
        if differing:
            raise ConfigError(f"model: rank {rank} has other weights than rank 0, {differing[0]}; make the same on all")
    for tensor in tensors.values() if world.size > 1 else ():
        whole = tensor.detach().contiguous()
        dist.broadcast(whole, src=0)
        tensor.copy_(whole)


def expect_view(model: nn.Module) -> None:
    """Let the sharded `model` give views, as a linear layer with a bias does, without FSDP's warning.

    What it warns of is an operation in place on them; the loss of this package has none.
    """
    message = re.escape(f"FSDP2-wrapped module ({type(model).__name__}) returned a view tensor")
    warnings.filterwarnings("ignore", message=message, category=UserWarning)
