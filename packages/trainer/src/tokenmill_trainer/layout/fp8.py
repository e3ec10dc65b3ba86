"""fp8: the blocks' linear layers multiply in 8 bits, through torchao; all else is as in bf16.

    x bf16, weight bf16 (of an fp32 master) ─ scale by the largest value, round to e4m3 ─ product ─▶ y bf16
    backward: gradients are rounded to e5m2 (tensorwise) or e4m3 (rowwise), and both products are in fp8 as well

Scales are taken from the values at hand, so they are no state, and checkpoints are those of bf16. Left as they are:
embedding and head, routers and routed experts, and layers with a size that 16 does not divide, which no kernel takes.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import nn

from tokenmill_core.errors import ConfigError
from tokenmill_core.manifest import Frozen

ALIGNMENT = 16
"""What the sizes of a product in fp8 must be multiples of."""
CAPABILITY = (8, 9)
"""CUDA compute capability from which on a GPU multiplies in fp8: Ada, Hopper and later."""
INSTALL = "pip install 'tokenmill-trainer[fp8]'"


class Fp8Config(Frozen):
    """How numbers are rounded with `training.precision = "fp8"`."""

    scaling: Literal["tensorwise", "rowwise"] = "tensorwise"
    """One scale a tensor, which is faster, or one a row, which an outlier disturbs less."""
    emulate: bool = False
    """Round as fp8 does but multiply in bf16: slow, on any hardware, to see what fp8 does to a loss."""


def check_fp8(config: Fp8Config, device: torch.device, micro_batch_tokens: int) -> None:
    """This device, this installation and this micro-batch can be used, or `ConfigError`."""
    if not config.emulate and device.type != "cuda":
        raise ConfigError(
            "training.precision: fp8 needs a GPU of CUDA capability 8.9 or later, and there is none here; use bf16, "
            "or see what fp8 would do with fp8.emulate=true"
        )
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else CAPABILITY
    if not config.emulate and capability < CAPABILITY:
        name, number = torch.cuda.get_device_name(device), ".".join(map(str, capability))
        raise ConfigError(
            f"training.precision: fp8 needs CUDA capability 8.9 or later, and {name} has {number}; use bf16"
        )
    if micro_batch_tokens % ALIGNMENT:
        raise ConfigError(
            f"training.precision: fp8 needs micro-batches of a multiple of {ALIGNMENT} tokens, and "
            f"training.micro_batch_size × data.sequence_length is {micro_batch_tokens}; change one of them"
        )
    _torchao()


def convert_to_fp8(blocks: Sequence[nn.Module], config: Fp8Config) -> None:
    """Make the linear layers of `blocks` multiply in fp8, where their sizes allow it. Parameters stay what they are.

    Errors: `ConfigError` where not one of them can.
    """
    torchao = _torchao()
    settings = replace(torchao.Float8LinearConfig.from_recipe_name(config.scaling), emulate=config.emulate)
    if not any(_is_aligned(module) for block in blocks for module in block.modules()):
        raise ConfigError(
            f"training.precision: no linear layer of the blocks has sizes that are multiples of {ALIGNMENT}, as fp8 "
            "needs them; use bf16"
        )
    for block in blocks:
        torchao.convert_to_float8_training(
            block, config=settings, module_filter_fn=lambda module, _: _is_aligned(module)
        )


def _is_aligned(module: nn.Module) -> bool:
    if not isinstance(module, nn.Linear):
        return False
    return module.in_features % ALIGNMENT == 0 and module.out_features % ALIGNMENT == 0


def _torchao() -> Any:
    try:
        from torchao import float8
    except ImportError as error:
        raise ConfigError(f"training.precision: fp8 needs torchao: {INSTALL}, or use bf16") from error
    return float8
