"""Qwen2 and Qwen3, dense: a Llama with biases of queries, keys and values; and one with norms of queries and keys."""

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


def check_no_window(settings: Settings) -> None:
    """Refuse the sliding window that no published Qwen turns on."""
    supported(settings, "use_sliding_window", {False: False}, False)


def _write_qwen2(config: ModelConfig) -> Settings:
    return {**write_llama_like(config), "use_sliding_window": False}


def _read_qwen2(settings: Settings) -> Settings:
    check_no_window(settings)
    return {**read_llama_like(settings), "attention_bias": "qkv"}


def _write_qwen3(config: ModelConfig) -> Settings:
    return {**write_llama_like(config), **write_attention_bias(config), "use_sliding_window": False}


def _read_qwen3(settings: Settings) -> Settings:
    check_no_window(settings)
    return {**read_llama_like(settings), **read_attention_bias(settings), "qk_norm": "head"}


QWEN2 = Layout("qwen2", "Qwen2ForCausalLM", _write_qwen2, _read_qwen2)
QWEN3 = Layout("qwen3", "Qwen3ForCausalLM", _write_qwen3, _read_qwen3)
