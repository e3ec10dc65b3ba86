"""What an architecture of `transformers` calls our settings and parameters.

Each architecture has a file with its `Layout`: `config.json` and the weights' names, in both directions. What most of
them share, the form of Llama's, is here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tokenmill_core.errors import ConfigError
from tokenmill_trainer.hf.rope import read_rope, write_rope
from tokenmill_trainer.model import ModelConfig

Settings = dict[str, Any]
State = dict[str, Tensor]

GATED_ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu_pytorch_tanh"}


def with_prefix(config: ModelConfig, state: State) -> State:
    """Our weights under the names of Llama's kind."""
    del config
    return {name if name.startswith("lm_head.") else f"model.{name}": value for name, value in state.items()}


def without_prefix(config: ModelConfig, state: State) -> State:
    """Weights of Llama's kind under our names; a tied head's second copy and old files' rotary tables are left out."""
    return {
        name.removeprefix("model."): value
        for name, value in state.items()
        if not name.endswith("rotary_emb.inv_freq") and not (config.tied_embeddings and name == "lm_head.weight")
    }


@dataclass(frozen=True)
class Layout:
    """An architecture."""

    model_type: str
    """As in `config.json`."""
    architecture: str
    """The class that `transformers` builds."""
    write_config: Callable[[ModelConfig], Settings]
    """The content of `config.json` that says what the model computes. What it cannot say is left unsaid."""
    read_config: Callable[[Settings], Settings]
    """Such content, as settings of `ModelConfig`. Errors: `ConfigError` by `supported`."""
    write_state: Callable[[ModelConfig, State], State] = with_prefix
    """Our weights under its names."""
    read_state: Callable[[ModelConfig, State], State] = without_prefix
    """Its weights under our names."""


def supported(settings: Settings, key: str, meanings: Mapping[Any, Any], default: Any) -> Any:
    """What the value of `key` means. Errors: `ConfigError` where it is none of those known."""
    value = settings.get(key, default)
    if isinstance(value, list | dict) or value not in meanings:
        known = ", ".join(repr(known) for known in meanings)
        raise ConfigError(f"config.json: {key} {value!r} cannot be imported; what can: {known}")
    return meanings[value]


def write_llama_like(config: ModelConfig) -> Settings:
    """Sizes, positions and activation, as Llama and its kin name them."""
    return {
        "vocab_size": config.vocabulary,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied_embeddings,
        "hidden_act": GATED_ACTIVATIONS.get(config.activation, "silu"),
        "initializer_range": config.init_std,
        **write_rope(config),
    }


def read_llama_like(settings: Settings) -> Settings:
    """The same as settings of ours."""
    activation = {theirs: ours for ours, theirs in GATED_ACTIVATIONS.items()}
    return {
        "vocab_size": settings["vocab_size"],
        "hidden_size": settings["hidden_size"],
        "intermediate_size": settings["intermediate_size"],
        "num_layers": settings["num_hidden_layers"],
        "num_heads": settings["num_attention_heads"],
        "num_kv_heads": settings.get("num_key_value_heads"),
        "head_dim": settings.get("head_dim"),
        "norm_eps": settings.get("rms_norm_eps", 1e-6),
        "tied_embeddings": settings.get("tie_word_embeddings", False),
        "activation": supported(settings, "hidden_act", activation, "silu"),
        "init_std": settings.get("initializer_range", 0.02),
        **read_rope(settings),
    }


def write_attention_bias(config: ModelConfig) -> Settings:
    """The switch that gives all projections of attention a bias."""
    return {"attention_bias": config.attention_bias == "all"}


def read_attention_bias(settings: Settings) -> Settings:
    """The same as a setting of ours."""
    return {"attention_bias": "all" if settings.get("attention_bias") else "none"}
