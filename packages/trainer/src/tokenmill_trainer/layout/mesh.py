"""Which rank holds what: the mesh of a run.

    8 ranks, shard_size 4              shard
                           replicate   0 1 2 3     ranks of a row share one copy of the model,
                                       4 5 6 7     those of a column hold the same part of it

Both dimensions are data parallel: every rank reads samples of its own. Another way to split a model is another named
dimension of the same mesh.
"""

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from tokenmill_core.errors import ConfigError
from tokenmill_trainer.layout.config import LayoutConfig
from tokenmill_trainer.world import World

REPLICATE, SHARD = "replicate", "shard"


def check_ranks(layout: LayoutConfig, world_size: int) -> None:
    """The ranks divide into whole copies of the model, or `ConfigError`."""
    num_shards = layout.num_shards(world_size)
    if world_size % num_shards:
        raise ConfigError(
            f"training.shard_size: copies on {num_shards} ranks each do not fit on {world_size}; set it to a divisor "
            "of the number of ranks, or leave it out"
        )


def device_mesh(world: World, layout: LayoutConfig) -> DeviceMesh:
    """All ranks, as (copies of the model) × (ranks that share one)."""
    num_shards = layout.num_shards(world.size)
    shape = (world.size // num_shards, num_shards)
    return init_device_mesh(world.device.type, shape, mesh_dim_names=(REPLICATE, SHARD))
