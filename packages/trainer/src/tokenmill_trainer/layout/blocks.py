"""The blocks of a model: the modules that are compiled, recomputed and gathered one at a time.

blocks ─ products in fp8 ─▶ recompute in backward ─▶ compile ─▶ (shard)
"""

from collections.abc import Sequence

from torch import nn

from tokenmill_core.errors import ConfigError
from tokenmill_trainer.layout.fp8 import Fp8Config, convert_to_fp8
from tokenmill_trainer.layout.recompute import RecomputeConfig, recompute_blocks


def prepare_blocks(
    blocks: Sequence[nn.Module], *, fp8: Fp8Config | None, recompute: RecomputeConfig, compile_blocks: bool
) -> None:
    """What is asked for, in the order in which one may hold the other: compiled code contains the recomputation."""
    if fp8 is not None:
        convert_to_fp8(blocks, fp8)
    recompute_blocks(blocks, recompute)
    if compile_blocks:
        for block in blocks:
            block.compile()


def find_blocks(model: nn.Module, names: Sequence[str] | None = None) -> list[nn.Module]:
    """The modules called `names`, a list of modules standing for what it holds; without names, those of `longest_list`.

    Errors: `ConfigError` where a name is none of the model's, and where a weight belongs to two blocks.
    """
    modules = dict(model.named_modules())
    unknown = [name for name in names or () if name not in modules or not name]
    if unknown:
        known = [name for name in modules if name][:3]
        raise ConfigError(f"blocks: the model has no module {unknown[0]!r}; its modules are such as {known}")
    lists = longest_list(model) if names is None else [modules[name] for name in names]
    blocks: list[nn.Module] = []
    for module in lists:
        blocks += module if isinstance(module, nn.ModuleList | nn.Sequential) else [module]
    blocks = list(dict.fromkeys(blocks))
    _refuse_shared(model, blocks)
    return blocks


def longest_list(model: nn.Module) -> list[nn.Module]:
    """The longest `nn.ModuleList` of the model that is in no other one, such as its layers; empty: there is none."""
    outermost: dict[str, nn.ModuleList] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and not any(name.startswith(f"{outer}.") for outer in outermost):
            outermost[name] = module
    return [max(outermost.values(), key=len)] if outermost else []


def _refuse_shared(model: nn.Module, blocks: Sequence[nn.Module]) -> None:
    """FSDP gathers each weight with one block or with the rest of the model; it knows no weight of two."""
    name_of = {parameter: name for name, parameter in model.named_parameters()}
    inside = {module for block in blocks for module in block.modules()}
    rest = {p for module in model.modules() if module not in inside for p in module.parameters(recurse=False)}
    seen = set(rest)
    for block in blocks:
        own = set(block.parameters())
        shared = own & seen
        if shared:
            names = sorted(name_of[parameter] for parameter in shared)
            raise ConfigError(
                f"blocks: the weight {names[0]} is part of two blocks, or of a block and of what is around them; name "
                "modules as blocks= that share none, such as the one that holds them all"
            )
        seen |= own
