"""GPT-2: learned positions, LayerNorm, biases everywhere; one transposed matrix for queries, keys and values."""

import re

import torch

from tokenmill_core.errors import ConfigError
from tokenmill_trainer.hf.layout import Layout, Settings, State, supported
from tokenmill_trainer.model import ModelConfig

GELU = "gelu_new"
NAMES = {
    "embed_tokens": "wte",
    "embed_positions": "wpe",
    "input_layernorm": "ln_1",
    "post_attention_layernorm": "ln_2",
    "self_attn.o_proj": "attn.c_proj",
    "mlp.up_proj": "mlp.c_fc",
    "mlp.down_proj": "mlp.c_proj",
    "norm": "ln_f",
}
"""Of modules, without the place of their layer. Those in `TRANSPOSED` are stored (in, out)."""
TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
JOINED = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def _write_config(config: ModelConfig) -> Settings:
    return {
        "vocab_size": config.vocabulary,
        "n_positions": config.max_positions,
        "n_embd": config.hidden_size,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": config.intermediate_size,
        "activation_function": GELU,
        "layer_norm_epsilon": config.norm_eps,
        "initializer_range": config.init_std,
        "tie_word_embeddings": config.tied_embeddings,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    }


def _read_config(settings: Settings) -> Settings:
    supported(settings, "scale_attn_weights", {True: True}, True)
    supported(settings, "scale_attn_by_inverse_layer_idx", {False: False}, False)
    supported(settings, "activation_function", {GELU: "gelu"}, GELU)
    return {
        "vocab_size": settings["vocab_size"],
        "position": "learned",
        "max_positions": settings.get("n_positions", 1024),
        "hidden_size": settings["n_embd"],
        "num_layers": settings["n_layer"],
        "num_heads": settings["n_head"],
        "intermediate_size": settings.get("n_inner") or 4 * settings["n_embd"],
        "activation": "gelu",
        "norm": "layernorm",
        "norm_eps": settings.get("layer_norm_epsilon", 1e-5),
        "init_std": settings.get("initializer_range", 0.02),
        "tied_embeddings": settings.get("tie_word_embeddings", True),
        "attention_bias": "all",
        "mlp_bias": True,
    }


def _write_state(config: ModelConfig, state: State) -> State:
    del config
    written: State = {}
    for name, value in state.items():
        layer, module, kind = _split(name)
        if module == JOINED[0]:
            parts = [state[_name(f"layers.{layer}.", part, kind)] for part in JOINED]
            module, value = "attn.c_attn", torch.cat(parts)
        elif module in JOINED:
            continue
        their_name = _name("" if layer is None else f"h.{layer}.", NAMES.get(module, module), kind)
        their_name = their_name if module == "lm_head" else f"transformer.{their_name}"
        written[their_name] = value.T.contiguous() if their_name.endswith(TRANSPOSED) else value
    return written


def _read_state(config: ModelConfig, state: State) -> State:
    """Also without `transformer.` and with the causal masks, as OpenAI's own files are."""
    our_modules = {theirs: ours for ours, theirs in NAMES.items()}
    read: State = {}
    for name, value in state.items():
        if name.endswith((".attn.bias", ".attn.masked_bias")) or (config.tied_embeddings and name == "lm_head.weight"):
            continue
        layer, module, kind = _split(name.removeprefix("transformer."))
        prefix = "" if layer is None else f"layers.{layer}."
        whole = value.T.contiguous() if name.endswith(TRANSPOSED) else value
        if module == "attn.c_attn":
            read |= {_name(prefix, part, kind): piece for part, piece in zip(JOINED, whole.chunk(3), strict=True)}
        else:
            read[_name(prefix, our_modules.get(module, module), kind)] = whole
    return read


def _split(name: str) -> tuple[str | None, str, str]:
    """`layers.0.mlp.up_proj.bias` or `h.0.mlp.c_fc.bias` as (`0`, module, `bias`); outside of layers none for `0`."""
    match = re.fullmatch(r"(?:(?:layers|h)\.(\d+)\.)?(.+)\.(weight|bias)", name)
    if match is None:
        raise ConfigError(f"{name}: a GPT-2 has no parameter of this name")
    return match[1], match[2], match[3]


def _name(prefix: str, module: str, kind: str) -> str:
    return f"{prefix}{module}.{kind}"


GPT2 = Layout("gpt2", "GPT2LMHeadModel", _write_config, _read_config, _write_state, _read_state)
