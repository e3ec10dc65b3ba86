"""The architectures there are, and which of them can hold a model.

An architecture can hold a model whose settings are the same when they are read back from its `config.json`.
"""

import math
from types import UnionType
from typing import Any

from tokenmill_core.config import validate_config
from tokenmill_core.errors import ConfigError
from tokenmill_trainer.hf.deepseek import DEEPSEEK_V2, DEEPSEEK_V3
from tokenmill_trainer.hf.gemma2 import GEMMA2
from tokenmill_trainer.hf.gpt2 import GPT2
from tokenmill_trainer.hf.layout import Layout, Settings
from tokenmill_trainer.hf.llama import LLAMA
from tokenmill_trainer.hf.mistral import MISTRAL
from tokenmill_trainer.hf.mixtral import MIXTRAL
from tokenmill_trainer.hf.olmo2 import OLMO2
from tokenmill_trainer.hf.qwen import QWEN2, QWEN3
from tokenmill_trainer.hf.qwen_moe import QWEN3_MOE
from tokenmill_trainer.model import ModelConfig, MoEConfig

LAYOUTS = (LLAMA, MISTRAL, QWEN2, QWEN3, OLMO2, GEMMA2, GPT2, MIXTRAL, QWEN3_MOE, DEEPSEEK_V2, DEEPSEEK_V3)
"""The first that can hold a model is the one it is exported as."""

NOT_COMPUTED = {"preset", "init", "init_std", "residual_scaling", "mup_base_width"}
ROTARY = {"rope_theta", "rope_fraction", "rope_scaling"}
KINDS: dict[str, UnionType | type] = {
    **dict.fromkeys(("vocab_size", "num_hidden_layers", "n_layer", "n_embd", "first_k_dense_replace"), int),
    "query_pre_attn_scalar": int | float,
    **dict.fromkeys(("layer_types", "mlp_only_layers"), list | None),
    **dict.fromkeys(("rope_parameters", "rope_scaling"), dict | None),
}
"""Of what `read_config` computes with; the rest is checked as settings of ours."""
KIND_NAMES: dict[UnionType | type, str] = {
    int: "a whole number",
    int | float: "a number",
    list | None: "a list",
    dict | None: "a section",
}
MAX_SHOWN = 60
BALANCING = {"aux_loss", "aux_loss_over", "z_loss", "bias_update_rate"}


def layout_of(settings: Settings) -> Layout:
    """The architecture of a `config.json`. Errors: `ConfigError` where it is not one of ours."""
    for layout in LAYOUTS:
        if layout.model_type == settings.get("model_type"):
            return layout
    known = ", ".join(layout.model_type for layout in LAYOUTS)
    raise ConfigError(f"config.json: model_type {settings.get('model_type')!r} cannot be imported; what can: {known}")


def read_config(layout: Layout, settings: Settings) -> ModelConfig:
    """The model that a `config.json` describes. Errors: `ConfigError` where we do not have it."""
    _check_kinds(settings)
    try:
        ours = layout.read_config(settings)
    except KeyError as error:
        raise ConfigError(f"config.json: {error.args[0]} is missing; a {layout.model_type} needs it") from error
    except ConfigError:
        raise
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ConfigError(f"config.json: a value is not of its kind ({error}); download it again") from error
    return validate_config(ModelConfig, ours, f"config.json, a {layout.model_type} as settings of ours")


def _check_kinds(settings: Settings) -> None:
    for name, kind in KINDS.items():
        if name in settings and not isinstance(settings[name], kind):
            shown = repr(settings[name])[:MAX_SHOWN]
            raise ConfigError(f"config.json: {name} is {shown}, not {KIND_NAMES[kind]}; download it again")


def layout_for(config: ModelConfig) -> Layout:
    """The architecture that can hold the model. Errors: `ConfigError` with the nearest one and what it lacks."""
    lacking = {layout: _differences(config, layout) for layout in LAYOUTS}
    nearest = min(LAYOUTS, key=lambda layout: len(lacking[layout]))
    if not lacking[nearest]:
        return nearest
    missing = ", ".join(f"model.{name} = {value}" for name, value in lacking[nearest].items())
    raise ConfigError(
        f"no architecture of transformers has these settings together; the nearest, {nearest.architecture}, lacks "
        f"{missing}: such a model can be trained, but not exported"
    )


def _differences(config: ModelConfig, layout: Layout) -> dict[str, Any]:
    """The settings that do not come back from the architecture's `config.json`."""
    try:
        theirs = read_config(layout, layout.write_config(config))
    except ConfigError:
        return computed(config)
    return {name: ours for name, (ours, _) in differences(config, theirs).items()}


def differences(ours: ModelConfig, theirs: ModelConfig) -> dict[str, tuple[Any, Any]]:
    """What two models compute differently, as (ours, theirs) by setting."""
    wanted, got = computed(ours), computed(theirs)
    return {name: (value, got.get(name)) for name, value in wanted.items() if not _same(value, got.get(name))}


def computed(config: ModelConfig) -> dict[str, Any]:
    """All that decides what the model computes, resolved: two models with the same weights and this are the same."""
    unused = set(ROTARY) if config.position == "learned" else {"max_positions"}
    if all(config.is_sparse(layer) for layer in range(config.num_layers)):
        unused.add("intermediate_size")
    resolved = {
        "moe": None if config.moe is None else _computed_by_experts(config.moe),
        "num_kv_heads": config.kv_heads,
        "head_dim": config.head_size,
        "attention_scale": config.softmax_scale,
        "width_ratio": config.width_ratio,
    }
    return {**config.model_dump(exclude=NOT_COMPUTED | unused), **resolved}


def _computed_by_experts(moe: MoEConfig) -> dict[str, Any]:
    # A sigmoid router without biases computes what one with biases of 0 does.
    has_biases = moe.router == "sigmoid" or moe.bias_update_rate is not None
    return {**moe.model_dump(exclude=BALANCING), "has_biases": has_biases}


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_same(value, theirs[name]) for name, value in ours.items())
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12)
    return bool(ours == theirs)
