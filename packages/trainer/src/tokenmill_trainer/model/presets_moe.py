"""Shapes of published models with experts, as settings of `ModelConfig`; a test holds each to its published size.

Each has the balancing it was published with.
"""

from typing import Any

MIXTRAL_8X7B: dict[str, Any] = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "num_layers": 32,
    "num_heads": 32,
    "num_kv_heads": 8,
    "rope_theta": 1_000_000.0,
    "moe": {
        "num_experts": 8,
        "experts_per_token": 2,
        "expert_intermediate_size": 14_336,
        "aux_loss": 0.02,
        "aux_loss_over": "micro_batch",
    },
}
"""arXiv:2401.04088."""

QWEN3_30B_A3B: dict[str, Any] = {
    "vocab_size": 151_936,
    "hidden_size": 2048,
    "num_layers": 48,
    "num_heads": 32,
    "num_kv_heads": 4,
    "head_dim": 128,
    "qk_norm": "head",
    "rope_theta": 1_000_000.0,
    "norm_eps": 1e-6,
    "moe": {
        "num_experts": 128,
        "experts_per_token": 8,
        "expert_intermediate_size": 768,
        "aux_loss": 0.001,
        "aux_loss_over": "micro_batch",
    },
}
"""arXiv:2505.09388."""

DEEPSEEK_V2_LITE: dict[str, Any] = {
    "vocab_size": 102_400,
    "hidden_size": 2048,
    "intermediate_size": 10_944,
    "num_layers": 27,
    "num_heads": 16,
    "attention": "mla",
    "mla": {"kv_rank": 512, "nope_head_dim": 128, "rope_head_dim": 64, "v_head_dim": 128},
    "rope_scaling": {"kind": "yarn", "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.707},
    "norm_eps": 1e-6,
    "moe": {
        "num_experts": 64,
        "experts_per_token": 6,
        "expert_intermediate_size": 1408,
        "num_shared_experts": 2,
        "num_dense_layers": 1,
        "normalise_gates": False,
        "aux_loss": 0.001,
    },
}
"""arXiv:2405.04434."""

DEEPSEEK_V3: dict[str, Any] = {
    "vocab_size": 129_280,
    "hidden_size": 7168,
    "intermediate_size": 18_432,
    "num_layers": 61,
    "num_heads": 128,
    "attention": "mla",
    "mla": {"q_rank": 1536, "kv_rank": 512, "nope_head_dim": 128, "rope_head_dim": 64, "v_head_dim": 128},
    "rope_scaling": {"kind": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0},
    "norm_eps": 1e-6,
    "moe": {
        "num_experts": 256,
        "experts_per_token": 8,
        "expert_intermediate_size": 2048,
        "num_shared_experts": 1,
        "num_dense_layers": 3,
        "router": "sigmoid",
        "gate_scale": 2.5,
        "num_groups": 8,
        "groups_per_token": 4,
        "aux_loss": 0.0001,
        "bias_update_rate": 0.001,
    },
}
"""arXiv:2412.19437, without its module for multi-token prediction."""

MOE_PRESETS = {
    "mixtral-8x7b": MIXTRAL_8X7B,
    "qwen3-30b-a3b": QWEN3_30B_A3B,
    "deepseek-v2-lite": DEEPSEEK_V2_LITE,
    "deepseek-v3": DEEPSEEK_V3,
}
