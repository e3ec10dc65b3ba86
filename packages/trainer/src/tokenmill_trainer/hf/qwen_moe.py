"""Qwen3 with experts."""

from tokenmill_core.errors import ConfigError
from tokenmill_trainer.hf.experts import stacked, unstacked
from tokenmill_trainer.hf.layout import (
    Layout,
    Settings,
    State,
    read_attention_bias,
    read_llama_like,
    supported,
    with_prefix,
    without_prefix,
    write_attention_bias,
    write_llama_like,
)
from tokenmill_trainer.hf.qwen import check_no_window
from tokenmill_trainer.model import ModelConfig


def _write(config: ModelConfig) -> Settings:
    if config.moe is None:
        return write_llama_like(config)
    return {
        **write_llama_like(config),
        **write_attention_bias(config),
        "use_sliding_window": False,
        "num_experts": config.moe.num_experts,
        "num_experts_per_tok": config.moe.experts_per_token,
        "moe_intermediate_size": config.moe.expert_intermediate_size,
        "norm_topk_prob": config.moe.normalise_gates,
        "decoder_sparse_step": 1,
        "mlp_only_layers": list(range(config.moe.num_dense_layers)),
    }


def _read(settings: Settings) -> Settings:
    check_no_window(settings)
    supported(settings, "decoder_sparse_step", {1: 1}, 1)
    dense_layers = settings.get("mlp_only_layers") or []
    if dense_layers != list(range(len(dense_layers))):
        raise ConfigError(f"config.json: mlp_only_layers {dense_layers} cannot be imported; what can: the first ones")
    num_experts = settings.get("num_experts") or settings["num_local_experts"]  # their version 5 writes the latter
    return {
        **read_llama_like(settings),
        **read_attention_bias(settings),
        "qk_norm": "head",
        "moe": {
            "num_experts": num_experts,
            "experts_per_token": settings["num_experts_per_tok"],
            "expert_intermediate_size": settings["moe_intermediate_size"],
            "normalise_gates": settings.get("norm_topk_prob", False),
            "num_dense_layers": len(dense_layers),
        },
    }


def _write_state(config: ModelConfig, state: State) -> State:
    return with_prefix(config, unstacked(state))


def _read_state(config: ModelConfig, state: State) -> State:
    return stacked(without_prefix(config, state))


QWEN3_MOE = Layout("qwen3_moe", "Qwen3MoeForCausalLM", _write, _read, _write_state, _read_state)
