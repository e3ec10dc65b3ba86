"""Shapes of published dense models, as settings of `ModelConfig`; a test holds each to its published size."""

from typing import Any

from tokenmill_trainer.model.presets_moe import MOE_PRESETS

Settings = dict[str, Any]


def gpt2(hidden_size: int, num_layers: int, num_heads: int) -> Settings:
    """GPT-2 (Radford et al. 2019)."""
    return {
        "vocab_size": 50_257,
        "hidden_size": hidden_size,
        "intermediate_size": 4 * hidden_size,
        "num_layers": num_layers,
        "num_heads": num_heads,
        "position": "learned",
        "max_positions": 1024,
        "norm": "layernorm",
        "activation": "gelu",
        "attention_bias": "all",
        "mlp_bias": True,
        "tied_embeddings": True,
    }


def llama3(hidden_size: int, intermediate_size: int, num_layers: int, num_heads: int) -> Settings:
    """Llama 3 (arXiv:2407.21783)."""
    return {
        "vocab_size": 128_256,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_layers": num_layers,
        "num_heads": num_heads,
        "num_kv_heads": 8,
        "rope_theta": 500_000.0,
    }


def longer(settings: Settings, factor: float) -> Settings:
    """Llama 3.1 and later: contexts of 128k by scaled frequencies."""
    return {**settings, "rope_scaling": {"kind": "llama3", "factor": factor}}


def qwen3(hidden_size: int, intermediate_size: int, num_layers: int, num_heads: int) -> Settings:
    """Qwen3, dense (arXiv:2505.09388)."""
    return {
        "vocab_size": 151_936,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_layers": num_layers,
        "num_heads": num_heads,
        "num_kv_heads": 8,
        "head_dim": 128,
        "qk_norm": "head",
        "rope_theta": 1_000_000.0,
        "norm_eps": 1e-6,
    }


LLAMA_2_7B: Settings = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_layers": 32,
    "num_heads": 32,
}
"""arXiv:2307.09288."""

MISTRAL_7B: Settings = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_layers": 32,
    "num_heads": 32,
    "num_kv_heads": 8,
    "sliding_window": 4096,
}
"""arXiv:2310.06825."""

OLMO_2_7B: Settings = {
    "vocab_size": 100_352,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_layers": 32,
    "num_heads": 32,
    "qk_norm": "full",
    "norm_placement": "post",
    "norm_eps": 1e-6,
    "rope_theta": 500_000.0,
    "init": "truncated",
    "residual_scaling": False,
}
"""arXiv:2501.00656."""

GEMMA_2_9B: Settings = {
    "vocab_size": 256_000,
    "hidden_size": 3584,
    "intermediate_size": 14_336,
    "num_layers": 42,
    "num_heads": 16,
    "num_kv_heads": 8,
    "head_dim": 256,
    "attention_soft_cap": 50.0,
    "logit_soft_cap": 30.0,
    "sliding_window": 4096,
    "global_every": 2,
    "norm_placement": "sandwich",
    "norm_offset": True,
    "norm_eps": 1e-6,
    "activation": "geglu",
    "tied_embeddings": True,
    "embedding_scale": 3584**0.5,
}
"""arXiv:2408.00118."""

TINY: Settings = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_layers": 6,
    "num_heads": 8,
    "num_kv_heads": 4,
    "tied_embeddings": True,
}
"""Takes the tokenizer's vocabulary and trains on a laptop's CPU."""

DENSE_PRESETS: dict[str, Settings] = {
    "gpt2": gpt2(768, 12, 12),
    "gpt2-medium": gpt2(1024, 24, 16),
    "gpt2-large": gpt2(1280, 36, 20),
    "gpt2-xl": gpt2(1600, 48, 25),
    "llama-2-7b": LLAMA_2_7B,
    "llama-3-8b": llama3(4096, 14_336, 32, 32),
    "llama-3-70b": llama3(8192, 28_672, 80, 64),
    "llama-3.1-8b": longer(llama3(4096, 14_336, 32, 32), 8.0),
    "llama-3.1-405b": longer(llama3(16_384, 53_248, 126, 128), 8.0),
    "llama-3.2-1b": longer({**llama3(2048, 8192, 16, 32), "tied_embeddings": True}, 32.0),
    "mistral-7b": MISTRAL_7B,
    "qwen3-0.6b": {**qwen3(1024, 3072, 28, 16), "tied_embeddings": True},
    "qwen3-8b": qwen3(4096, 12_288, 36, 32),
    "olmo-2-7b": OLMO_2_7B,
    "gemma-2-9b": GEMMA_2_9B,
    "tiny": TINY,
}

PRESETS = {**DENSE_PRESETS, **MOE_PRESETS}
"""All there are."""
