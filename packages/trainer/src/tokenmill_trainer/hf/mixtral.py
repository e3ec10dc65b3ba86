"""Mixtral: a Mistral whose every layer has experts, with softmax over those chosen."""

from tokenmill_trainer.hf.experts import stacked, unstacked
from tokenmill_trainer.hf.layout import (
    Layout,
    Settings,
    State,
    read_llama_like,
    with_prefix,
    without_prefix,
    write_llama_like,
)
from tokenmill_trainer.model import ModelConfig

OURS_OF_THEIRS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def _write(config: ModelConfig) -> Settings:
    if config.moe is None:
        return write_llama_like(config)
    return {
        **write_llama_like(config),
        "sliding_window": config.sliding_window,
        "intermediate_size": config.moe.expert_intermediate_size,
        "num_local_experts": config.moe.num_experts,
        "num_experts_per_tok": config.moe.experts_per_token,
    }


def _read(settings: Settings) -> Settings:
    return {
        **read_llama_like(settings),
        "sliding_window": settings.get("sliding_window"),
        "moe": {
            "num_experts": settings["num_local_experts"],
            "experts_per_token": settings["num_experts_per_tok"],
            "expert_intermediate_size": settings["intermediate_size"],
        },
    }


def _write_state(config: ModelConfig, state: State) -> State:
    return with_prefix(config, {_their_name(name): value for name, value in unstacked(state).items()})


def _read_state(config: ModelConfig, state: State) -> State:
    return stacked({_our_name(name): value for name, value in without_prefix(config, state).items()})


def _their_name(name: str) -> str:
    for theirs, ours in OURS_OF_THEIRS.items():
        name = name.replace(f".{ours}.", f".{theirs}.")
    return name.replace(".mlp.", ".block_sparse_moe.")


def _our_name(name: str) -> str:
    for theirs, ours in OURS_OF_THEIRS.items():
        name = name.replace(f".{theirs}.", f".{ours}.")
    return name.replace(".block_sparse_moe.", ".mlp.")


MIXTRAL = Layout("mixtral", "MixtralForCausalLM", _write, _read, _write_state, _read_state)
