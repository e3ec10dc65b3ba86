"""OLMo 2: norms behind the branches, and of all queries and all keys at once."""

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
    return {**write_llama_like(config), **write_attention_bias(config)}


def _read(settings: Settings) -> Settings:
    return {
        **read_llama_like(settings),
        **read_attention_bias(settings),
        "norm_eps": settings.get("rms_norm_eps", 1e-5),
        "qk_norm": "full",
        "norm_placement": "post",
    }


OLMO2 = Layout("olmo2", "Olmo2ForCausalLM", _write, _read)
