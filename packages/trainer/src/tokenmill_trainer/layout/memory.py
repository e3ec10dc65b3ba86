"""Bytes of model states on one rank: what ZeRO promises, and what this trainer keeps, to be measured against.

Ψ parameters of which N ranks share a copy, AdamW, P bytes for computing (fp32 4, bf16 and fp16 2), u the largest block
and r the parameters outside of blocks:

    stage           weights   for computing   gradients   moments   on their way
    whole, fp32     4Ψ        –               4Ψ          8Ψ        –
    whole, bf16     4Ψ        2Ψ              4Ψ          8Ψ        –
    1               4Ψ/N      PΨ              4Ψ          8Ψ/N      4u
    2               4Ψ/N      PΨ              4Ψ/N        8Ψ/N      8u
    3               4Ψ/N      P(2u + r)       4Ψ/N        8Ψ/N      8u

Whole is stage 0, and any stage on one process. Where layers round weights on their way (`whole`) a whole bf16 model
needs next to nothing of the 2Ψ, as long as no product has fewer than 128 rows. Three things differ from the paper.
Gradients are summed in fp32, 4 bytes where it has 2, so that many micro-batches lose nothing. Stage 3 keeps no shards
in bf16: they are cast as they are gathered. And in fp32, which the paper leaves out, stages 1 and 2 gather a copy
beside the shards. Between steps there are weights and moments alone.

On their way to other ranks are the gradients of one block, as they are computed and in the buffer they are summed
from. In bf16 the former have 2 bytes, but gloo, with which this is measured, sums in a copy: 8u holds for it.
"""

from typing import NamedTuple

from torch import nn

from tokenmill_trainer.layout.config import DTYPES, LayoutConfig, Precision, ZeroStage
from tokenmill_trainer.model import ModelConfig

FP32_BYTES = 4
ADAMW_BYTES = 8
"""A parameter's two moments; muon has 4 for a matrix, adafactor about 0."""


class ModelStates(NamedTuple):
    """Bytes on one rank at the moment of a step when they are most."""

    weights: float
    """The fp32 masters."""
    computing: float
    """What forward and backward use, beside them."""
    gradients: float
    moments: float
    on_their_way: float
    """Buffers in which the gradients of one block are summed over ranks."""

    @property
    def at_rest(self) -> float:
        """Bytes between two steps."""
        return self.weights + self.moments

    @property
    def total(self) -> float:
        """Bytes in a step."""
        return sum(self)


class Units(NamedTuple):
    """Parameters of a model by what is gathered at a time."""

    all: int
    largest_block: int = 0
    outside_blocks: int = 0
    """Embedding, last norm, head."""


def units(model: nn.Module, blocks: list[nn.Module]) -> Units:
    """The parameters of `model`, whose `blocks` are gathered one by one."""
    sizes = [sum(parameter.numel() for parameter in block.parameters()) for block in blocks]
    total = sum(parameter.numel() for parameter in model.parameters())
    return Units(total, max(sizes, default=0), total - sum(sizes))


def model_states(
    units: Units, layout: LayoutConfig, world_size: int, moments_per_parameter: float = ADAMW_BYTES
) -> ModelStates:
    """The bytes of a step with several micro-batches, by the table above.

    With one micro-batch a step needs less at stages 0 to 2: no sums are kept, and what has its gradient is let go.
    """
    num_shards, width = layout.num_shards(world_size), DTYPES[layout.precision].itemsize
    if layout.is_whole(world_size):
        copy = 0 if layout.precision == "fp32" else width * units.all
        return ModelStates(FP32_BYTES * units.all, copy, FP32_BYTES * units.all, moments_per_parameter * units.all, 0)
    shard = units.all / num_shards
    gathered = 2 * units.largest_block + units.outside_blocks if layout.zero_stage == 3 else units.all
    return ModelStates(
        weights=FP32_BYTES * shard,
        computing=width * gathered,
        gradients=FP32_BYTES * (shard if layout.zero_stage >= 2 else units.all),
        moments=moments_per_parameter * shard,
        on_their_way=FP32_BYTES * units.largest_block * (2 if layout.zero_stage >= 2 else 1),
    )


def published_states(num_parameters: float, stage: ZeroStage, num_ranks: int) -> float:
    """Bytes of mixed-precision Adam in the paper's own account (arXiv:1910.02054, figure 1): 2 + 2 + 12 a parameter."""
    weights, gradients, optimizer = 2 * num_parameters, 2 * num_parameters, 12 * num_parameters
    if stage >= 1:
        optimizer /= num_ranks
    if stage >= 2:
        gradients /= num_ranks
    if stage >= 3:
        weights /= num_ranks
    return weights + gradients + optimizer


def block_activations(config: ModelConfig, precision: Precision) -> float:
    """Bytes a token that a dense block with SwiGLU and RMSNorm before its branches keeps for its backward on a CPU.

    Korthikanti et al. (arXiv:2205.05198) count 34h for GPT-2's block in 16 bits, and 5as/h · h for the scores, which
    the fused attention never keeps. Ours, with P bytes an element, Q and K the width of queries and keys, a heads, f
    the inner width:

        P · (4h  what norms, projections of q, k, v, and feed-forward read
           + 2Q  q, and the attention's result, which lies as the next projection reads it
           + 2K  k, v
           + 3f  gate, up, and what comes of both)
        + 4 · (a  log-sum of each head's scores
             + 2  root mean square of each norm)
    """
    width, h = DTYPES[precision].itemsize, config.hidden_size
    queries, keys = config.num_heads * config.head_size, config.kv_heads * config.head_size
    kept = 4 * h + 2 * queries + 2 * keys + 3 * config.intermediate_size
    return width * kept + FP32_BYTES * (config.num_heads + 2)
