"""Gemma 2: local and global layers, soft caps, norms before and behind, embeddings scaled by sqrt(hidden size)."""

import math

from tokenmill_core.errors import ConfigError
from tokenmill_trainer.hf.layout import (
    Layout,
    Settings,
    read_attention_bias,
    read_llama_like,
    supported,
    write_attention_bias,
    write_llama_like,
)
from tokenmill_trainer.model import ModelConfig

ACTIVATION = "gelu_pytorch_tanh"
LOCAL, GLOBAL = "sliding_attention", "full_attention"
UNUSED_WINDOW = 4096
"""Where no layer is local: `transformers` refuses to do without."""


def _write(config: ModelConfig) -> Settings:
    windows = [config.window_of(layer) for layer in range(config.num_layers)]
    return {
        **write_llama_like(config),
        **write_attention_bias(config),
        "hidden_activation": ACTIVATION,
        "query_pre_attn_scalar": round(config.softmax_scale**-2),
        "sliding_window": config.sliding_window or UNUSED_WINDOW,
        "layer_types": [GLOBAL if window is None else LOCAL for window in windows],
        "attn_logit_softcapping": config.attention_soft_cap,
        "final_logit_softcapping": config.logit_soft_cap,
    }


def _read(settings: Settings) -> Settings:
    return {
        **read_llama_like({**settings, "hidden_act": settings.get("hidden_activation") or ACTIVATION}),
        **read_attention_bias(settings),
        **_read_windows(settings),
        "tied_embeddings": settings.get("tie_word_embeddings", True),
        "head_dim": settings.get("head_dim", 256),
        "attention_scale": settings.get("query_pre_attn_scalar", 256) ** -0.5,
        "attention_soft_cap": settings.get("attn_logit_softcapping", 50.0),
        "logit_soft_cap": settings.get("final_logit_softcapping", 30.0),
        "norm_placement": "sandwich",
        "norm_offset": True,
        "embedding_scale": math.sqrt(settings["hidden_size"]),
        "activation": supported(settings, "hidden_activation", {ACTIVATION: "geglu"}, ACTIVATION),
    }


def _read_windows(settings: Settings) -> Settings:
    """`sliding_window` and `global_every` of `layer_types`, which alternate where they are not given."""
    num_layers = settings["num_hidden_layers"]
    types = settings.get("layer_types") or [(LOCAL, GLOBAL)[layer % 2] for layer in range(num_layers)]
    if LOCAL not in types:
        return {}
    window, every = settings.get("sliding_window", 4096), types.index(GLOBAL) + 1 if GLOBAL in types else None
    expected = [GLOBAL if every and (layer + 1) % every == 0 else LOCAL for layer in range(num_layers)]
    if types != expected:
        raise ConfigError(
            "config.json: layer_types cannot be imported; what can is a global layer every so many layers"
        )
    return {"sliding_window": window, "global_every": every}


GEMMA2 = Layout("gemma2", "Gemma2ForCausalLM", _write, _read)
