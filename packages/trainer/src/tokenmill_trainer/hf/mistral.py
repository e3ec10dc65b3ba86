"""Mistral: a Llama whose layers all have a sliding window."""

from tokenmill_trainer.hf.layout import Layout, Settings, read_llama_like, write_llama_like
from tokenmill_trainer.model import ModelConfig


def _write(config: ModelConfig) -> Settings:
    return {**write_llama_like(config), "sliding_window": config.sliding_window}


def _read(settings: Settings) -> Settings:
    return {**read_llama_like(settings), "sliding_window": settings.get("sliding_window", 4096)}


MISTRAL = Layout("mistral", "MistralForCausalLM", _write, _read)
