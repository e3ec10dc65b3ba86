"""Llama, 2 to 3.2."""

from tokenmill_trainer.hf.layout import (
    Layout,
    Settings,
    read_attention_bias,
    read_llama_like,
    write_attention_bias,
    write_llama_like,
)
from tokenmill_trainer.model import ModelConfig


def _write(config: ModelConfig) -> Settings:
    return {**write_llama_like(config), **write_attention_bias(config), "mlp_bias": config.mlp_bias}


def _read(settings: Settings) -> Settings:
    return {**read_llama_like(settings), **read_attention_bias(settings), "mlp_bias": settings.get("mlp_bias", False)}


LLAMA = Layout("llama", "LlamaForCausalLM", _write, _read)
