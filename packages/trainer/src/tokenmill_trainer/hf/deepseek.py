"""DeepSeek-V2 and V3: latent attention, and experts chosen by softmax (V2) or by sigmoid and biases (V3).

Their rotary pairs lie side by side, (0, 1), (2, 3), …; ours half a head apart. The rows that make them are reordered.
"""

import re
from collections.abc import Callable

import torch
from torch import Tensor

from tokenmill_trainer.hf.experts import stacked, unstacked
from tokenmill_trainer.hf.layout import (
    Layout,
    Settings,
    State,
    read_llama_like,
    supported,
    with_prefix,
    without_prefix,
    write_llama_like,
)
from tokenmill_trainer.hf.rope import read_rope
from tokenmill_trainer.model import LatentConfig, ModelConfig

OUR_BIAS, THEIR_BIAS = "mlp.gate.balance_bias", "mlp.gate.e_score_correction_bias"
LAYER = re.compile(r"layers\.(\d+)\.")


def _write(config: ModelConfig) -> Settings:
    shared = write_llama_like(config)
    if config.mla is None:
        return shared
    shared |= {"num_key_value_heads": config.num_heads, "head_dim": config.mla.rope_head_dim}
    return {**shared, **_write_latent(config.mla), **_write_experts(config)}


def _write_latent(mla: LatentConfig) -> Settings:
    return {
        "q_lora_rank": mla.q_rank,
        "kv_lora_rank": mla.kv_rank,
        "qk_nope_head_dim": mla.nope_head_dim,
        "qk_rope_head_dim": mla.rope_head_dim,
        "v_head_dim": mla.v_head_dim,
    }


def _write_experts(config: ModelConfig) -> Settings:
    moe = config.moe
    if moe is None:
        return {"first_k_dense_replace": config.num_layers}
    return {
        "first_k_dense_replace": moe.num_dense_layers,
        "n_routed_experts": moe.num_experts,
        "num_experts_per_tok": moe.experts_per_token,
        "moe_intermediate_size": moe.expert_intermediate_size,
        "n_shared_experts": max(moe.num_shared_experts, 1),  # they have no layer with experts but without shared ones
        "norm_topk_prob": moe.normalise_gates,
        "routed_scaling_factor": moe.gate_scale,
        "n_group": moe.num_groups,
        "topk_group": moe.groups_per_token,
    }


def _read(settings: Settings) -> Settings:
    supported(settings, "attention_bias", {False: False}, False)
    supported(settings, "moe_layer_freq", {1: 1}, 1)
    return {
        **read_llama_like(settings),
        **read_rope(settings, scales_scores=True),
        "num_kv_heads": None,
        "head_dim": None,
        "attention": "mla",
        "mla": {
            "q_rank": settings["q_lora_rank"],
            "kv_rank": settings["kv_lora_rank"],
            "nope_head_dim": settings["qk_nope_head_dim"],
            "rope_head_dim": settings["qk_rope_head_dim"],
            "v_head_dim": settings["v_head_dim"],
        },
        "moe": _read_experts(settings),
    }


def _read_experts(settings: Settings) -> Settings | None:
    if settings["first_k_dense_replace"] >= settings["num_hidden_layers"]:
        return None
    return {
        "num_dense_layers": settings["first_k_dense_replace"],
        "num_experts": settings["n_routed_experts"],
        "experts_per_token": settings["num_experts_per_tok"],
        "expert_intermediate_size": settings["moe_intermediate_size"],
        "num_shared_experts": settings["n_shared_experts"],
        "gate_scale": settings["routed_scaling_factor"],
        "num_groups": settings.get("n_group") or 1,
        "groups_per_token": settings.get("topk_group") or 1,
    }


def _write_v2(config: ModelConfig) -> Settings:
    grouped = config.moe is not None and config.moe.num_groups > 1
    return {**_write(config), "topk_method": "group_limited_greedy" if grouped else "greedy", "mlp_bias": False}


def _read_v2(settings: Settings) -> Settings:
    supported(settings, "mlp_bias", {False: False}, False)
    ungrouped = supported(settings, "topk_method", {"greedy": True, "group_limited_greedy": False}, "greedy")
    groups = {"n_group": 1, "topk_group": 1} if ungrouped else {}
    read = _read({**settings, **groups})
    if read["moe"] is not None:
        # Whatever `norm_topk_prob` says, their V2 never divides by the sum.
        read["moe"] |= {"router": "softmax", "normalise_gates": False}
    return read


def _write_v3(config: ModelConfig) -> Settings:
    return {**_write(config), "num_nextn_predict_layers": 0}


def _read_v3(settings: Settings) -> Settings:
    supported(settings, "rope_interleave", {True: True}, True)
    read = _read(settings)
    if read["moe"] is not None:
        # A rate is not theirs to say; 0 keeps the biases as they are.
        normalised = settings.get("norm_topk_prob", True)
        read["moe"] |= {"router": "sigmoid", "normalise_gates": normalised, "bias_update_rate": 0.0}
    return read


def _write_state(config: ModelConfig, state: State) -> State:
    theirs = {
        name.replace(OUR_BIAS, THEIR_BIAS): _reordered(config, name, value, _side_by_side)
        for name, value in {**_zero_biases(config, state), **state}.items()
    }
    return with_prefix(config, unstacked(theirs))


def _read_state(config: ModelConfig, state: State) -> State:
    theirs = stacked(without_prefix(config, state))
    return {
        name.replace(THEIR_BIAS, OUR_BIAS): _reordered(config, name, value, _half_apart)
        for name, value in theirs.items()
        if not _predicts_more(config, name)
    }


def _zero_biases(config: ModelConfig, state: State) -> State:
    """Biases for sigmoid routers that were trained without: theirs always have them."""
    if config.moe is None or config.moe.router != "sigmoid":
        return {}
    routers = [name for name in state if name.endswith("mlp.gate.weight")]
    return {name.replace("mlp.gate.weight", OUR_BIAS): state[name].new_zeros(len(state[name])) for name in routers}


def _predicts_more(config: ModelConfig, name: str) -> bool:
    """Whether it belongs to the module for multi-token prediction, which stands as one layer too many."""
    match = LAYER.match(name)
    return match is not None and int(match[1]) >= config.num_layers


def _reordered(config: ModelConfig, name: str, weight: Tensor, order: Callable[[Tensor], Tensor]) -> Tensor:
    """The weight with its rows that positions turn, the last of each head or of all, put into `order`."""
    assert config.mla is not None, "the config was read or written as theirs"
    if name.endswith(("self_attn.q_proj.weight", "self_attn.q_b_proj.weight")):
        heads_HdI = weight.view(config.num_heads, -1, weight.shape[1])
    elif name.endswith("self_attn.kv_a_proj_with_mqa.weight"):
        heads_HdI = weight.unsqueeze(0)
    else:
        return weight
    kept, turned = heads_HdI.tensor_split((-config.mla.rope_head_dim,), dim=1)
    return torch.cat((kept, order(turned)), 1).flatten(0, 1)


def _side_by_side(rows_HrI: Tensor) -> Tensor:
    first, second = rows_HrI.chunk(2, dim=1)
    return torch.stack((first, second), 2).flatten(1, 2)


def _half_apart(rows_HrI: Tensor) -> Tensor:
    return torch.cat((rows_HrI[:, 0::2], rows_HrI[:, 1::2]), 1)


DEEPSEEK_V2 = Layout("deepseek_v2", "DeepseekV2ForCausalLM", _write_v2, _read_v2, _write_state, _read_state)
DEEPSEEK_V3 = Layout("deepseek_v3", "DeepseekV3ForCausalLM", _write_v3, _read_v3, _write_state, _read_state)
