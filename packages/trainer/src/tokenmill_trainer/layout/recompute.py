"""Activation checkpointing: a block forgets what its backward needs, and computes it again when that comes.

    forward     x ─ block ─▶ y                          kept: x, and in `selective` what was costly to compute
    backward    x ─ block ─▶ what backward needs ─▶ gradients of x and of the weights

A recomputed block keeps its input alone: in 16 bits 2·s·b·h bytes for s positions, b samples, hidden size h, where
one of GPT otherwise keeps 34·s·b·h or more (arXiv:2205.05198). It costs one more forward of the block, a third of its
time. The same kernels run on the same numbers, so losses and gradients are the same bits. A block's `forward` is
replaced and its names are not, so checkpoints fit with and without. What only the first forward may do, such as
counting the loads of experts, has its place outside of blocks.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from functools import partial
from typing import Any

import torch
from pydantic import Field
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from tokenmill_core.manifest import Frozen
from tokenmill_trainer.model.linear import Linear


class RecomputeMode(StrEnum):
    """What is computed again in backward."""

    NONE = "none"
    """Nothing: all that backward needs is kept."""
    FULL = "full"
    """Every block."""
    EVERY_K = "every_k"
    """Every k-th block; the others keep everything."""
    SELECTIVE = "selective"
    """In every block all but attention, routing and matrix products, and of the products every k-th."""


class RecomputeConfig(Frozen):
    """Memory against time: what is computed again in backward rather than kept."""

    mode: RecomputeMode = RecomputeMode.NONE
    """`none`; `full`: every block is computed again; `every_k`: every k-th block; `selective`: in every block what is
    cheap, attention and most matrix products being kept."""
    every: int = Field(default=2, gt=0)
    """The k: of so many blocks (`every_k`) or matrix products of a block (`selective`) one is computed again."""


aten = torch.ops.aten
PRODUCTS = {
    aten.mm.default,
    aten.addmm.default,
    aten._grouped_mm.default,
    aten._scaled_mm.default,
    torch.ops.tokenmill.linear.default,
}
"""Products with weights. Batched ones are not among them: they make attention's scores where no kernel is fused."""
KEPT = {
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.higher_order.flex_attention,
    torch.ops.tokenmill.causal_attention.default,
    aten.topk.default,  # a router's choice, which is small, and must not turn out otherwise the second time
}
"""What `selective` keeps always."""


def recompute_blocks(blocks: Sequence[nn.Module], config: RecomputeConfig) -> None:
    """Make the blocks that `config` says compute their activations again; before compiling and sharding them."""
    if config.mode is RecomputeMode.NONE:
        return
    options: dict[str, Any] = {"use_reentrant": False}
    if config.mode is RecomputeMode.SELECTIVE:
        options["context_fn"] = partial(_selective_contexts, config.every)
        for layer in (module for block in blocks for module in block.modules() if isinstance(module, Linear)):
            layer.at_once = False  # it is each product that is kept or not
    step = config.every if config.mode is RecomputeMode.EVERY_K else 1
    for block in blocks[step - 1 :: step]:
        block.forward = _repeating(block.forward, options)


def _repeating(forward: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    """`forward` under `checkpoint`: a function of this file, as torch.compile passes over those of torch itself."""

    def repeating(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, **options, **kwargs)

    return repeating


def _selective_contexts(every: int) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    return create_selective_checkpoint_contexts(_KeepCostly(every))  # type: ignore[no-untyped-call, no-any-return]


class _KeepCostly:
    """The policy of one forward of one block, which counts the block's products."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.num_products: Counter[bool] = Counter()
        """In the forward, and in its repetition, which torch before 2.13 asks about too."""

    def __call__(self, context: SelectiveCheckpointContext, operation: Any, *args: Any, **_: Any) -> CheckpointPolicy:
        is_kept = operation in KEPT
        if operation in PRODUCTS:
            self.num_products[context.is_recompute] += 1
            is_kept = self.num_products[context.is_recompute] % self.every != 0
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE
