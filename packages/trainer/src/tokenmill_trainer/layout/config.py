"""Settings of how a model lies over ranks and memory."""

from typing import Any, Literal

import torch
from pydantic import Field, field_validator, model_validator

from tokenmill_core.manifest import Frozen

ZeroStage = Literal[0, 1, 2, 3]
Precision = Literal["fp32", "bf16", "fp16", "fp8"]
DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.bfloat16,
}
"""Of weights and activations in forward and backward; in fp8 some products round them further (`fp8.py`)."""


class LayoutConfig(Frozen):
    """What ranks share out, what they compute in, and where it lies."""

    precision: Precision = "fp32"
    """What forward and backward compute in; master weights, gradients' sums and moments are always fp32. `fp8`: bf16,
    and products of the blocks' linear layers in 8 bits, on GPUs that have them."""
    zero_stage: ZeroStage = 1
    """What the ranks share out: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too."""
    shard_size: int | None = Field(default=None, gt=0)
    """Ranks that share one copy of the model, of which there are then several (HSDP); none: all ranks share one."""
    cpu_offload: bool = False
    """Whether weights, gradients and optimizer state lie in the host's memory; the GPU computes, the CPU updates."""

    @field_validator("zero_stage", mode="before")
    @classmethod
    def _no_flag(cls, stage: Any) -> Any:
        if isinstance(stage, bool):
            raise ValueError("a stage is 0, 1, 2 or 3; name one")
        return stage

    @model_validator(mode="after")
    def _something_to_share(self) -> "LayoutConfig":
        if self.zero_stage == 0 and (self.shard_size or 1) > 1:
            raise ValueError(
                f"shard_size: {self.shard_size} ranks cannot share a copy at zero_stage 0, where every rank has its "
                "own; leave it out, or raise zero_stage"
            )
        return self

    def num_shards(self, world_size: int) -> int:
        """Ranks that share one copy, of `world_size` in all."""
        return 1 if self.zero_stage == 0 else self.shard_size or world_size

    def is_whole(self, world_size: int) -> bool:
        """Whether each of `world_size` ranks has all weights to itself, and where it computes."""
        return self.num_shards(world_size) == 1 and not self.cpu_offload
