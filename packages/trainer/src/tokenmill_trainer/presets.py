"""Shapes of published models, as settings of `ModelConfig`; a test holds each one to its published parameter count."""

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "llama-2-7b": {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_layers": 32,
        "num_heads": 32,
        "rope_theta": 10_000.0,
        "norm_eps": 1e-5,
    },
    "llama-3-8b": {
        "vocab_size": 128_256,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_layers": 32,
        "num_heads": 32,
        "num_kv_heads": 8,
        "rope_theta": 500_000.0,
        "norm_eps": 1e-5,
    },
    "llama-3.2-1b": {
        "vocab_size": 128_256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_layers": 16,
        "num_heads": 32,
        "num_kv_heads": 8,
        "rope_theta": 500_000.0,
        "norm_eps": 1e-5,
        "tied_embeddings": True,
    },
    "tiny": {
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_layers": 6,
        "num_heads": 8,
        "num_kv_heads": 4,
        "tied_embeddings": True,
    },
}
"""`tiny` takes the tokenizer's vocabulary and trains on a laptop's CPU; the others are as published, without the
position scaling that Llama 3.1 and later add for long contexts."""
