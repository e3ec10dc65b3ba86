"""Models of `transformers` with experts or latent attention there and ours here: the same weights and logits."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tokenmill_core.errors import ConfigError
from tokenmill_trainer.hf import load_hf
from tokenmill_trainer.hf.architectures import computed, layout_for, layout_of, read_config
from tokenmill_trainer.hf.writing import write_model
from tokenmill_trainer.model import Decoder, ModelConfig
from tokenmill_trainer.model.kv_cache import KeyValueCache

TOLERANCE = 1e-4
LENGTH = 32
SHAPE = {"vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_layers": 3, "num_heads": 6}
EXPERTS = {"num_experts": 8, "experts_per_token": 3, "expert_intermediate_size": 28}
LATENT = {"kv_rank": 20, "nope_head_dim": 10, "rope_head_dim": 8, "v_head_dim": 14}
YARN = {"kind": "yarn", "factor": 40.0, "original_positions": 16, "mscale": 1.0, "mscale_all_dim": 1.0}
SIGMOID = {"router": "sigmoid", "num_shared_experts": 1, "gate_scale": 2.5, "bias_update_rate": 0.001}
GROUPS = {"num_groups": 4, "groups_per_token": 2}
MLA = {"attention": "mla", "mla": LATENT, "norm_eps": 1e-6}
V3 = {**MLA, "mla": {**LATENT, "q_rank": 24}, "rope_scaling": YARN}

OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("MixtralForCausalLM", {"num_kv_heads": 2, "moe": EXPERTS}),
    "mixtral, window": ("MixtralForCausalLM", {"num_kv_heads": 2, "moe": EXPERTS, "sliding_window": 8}),
    "qwen3": (
        "Qwen3MoeForCausalLM",
        {"num_kv_heads": 2, "head_dim": 16, "qk_norm": "head", "moe": {**EXPERTS, "normalise_gates": False}},
    ),
    "qwen3, first layer dense": (
        "Qwen3MoeForCausalLM",
        {"num_kv_heads": 2, "qk_norm": "head", "tied_embeddings": True, "moe": {**EXPERTS, "num_dense_layers": 1}},
    ),
    "deepseek v2 lite": (
        "DeepseekV2ForCausalLM",
        {
            **MLA,
            "rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
            "moe": {**EXPERTS, "num_dense_layers": 1, "num_shared_experts": 2, "normalise_gates": False},
        },
    ),
    "deepseek v2, groups": (
        "DeepseekV2ForCausalLM",
        {
            **V3,
            "moe": {**EXPERTS, **GROUPS, "num_shared_experts": 1, "normalise_gates": False, "gate_scale": 16.0},
        },
    ),
    "deepseek v3": ("DeepseekV3ForCausalLM", {**V3, "moe": {**EXPERTS, **SIGMOID, **GROUPS, "num_dense_layers": 1}}),
    "deepseek v3, yarn of two magnitudes": (
        "DeepseekV3ForCausalLM",
        {**V3, "rope_scaling": {**YARN, "mscale_all_dim": 0.5}, "moe": {**EXPERTS, **SIGMOID}},
    ),
    "deepseek v3, trained without biases": (
        "DeepseekV3ForCausalLM",
        {**V3, "moe": {**EXPERTS, **SIGMOID, "normalise_gates": False, "bias_update_rate": None}},
    ),
    "latent attention, dense": ("DeepseekV2ForCausalLM", MLA),
}

LIKE_LLAMA = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
LIKE_DEEPSEEK = {
    **LIKE_LLAMA,
    "num_key_value_heads": 6,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 28,
    "kv_lora_rank": 20,
    "q_lora_rank": None,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 8,
    "v_head_dim": 14,
}
YARN_THERE = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 40.0,
    "original_max_position_embeddings": 16,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
}
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": (
        "MixtralConfig",
        {**LIKE_LLAMA, "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 3},
    ),
    "qwen3": (
        "Qwen3MoeConfig",
        {
            **LIKE_LLAMA,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 28,
            "norm_topk_prob": True,
            "mlp_only_layers": [0],
        },
    ),
    "deepseek v2 lite": ("DeepseekV2Config", {**LIKE_DEEPSEEK, "rope_parameters": YARN_THERE}),
    "deepseek v2, groups": (
        "DeepseekV2Config",
        {
            **LIKE_DEEPSEEK,
            "q_lora_rank": 24,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 16.0,
        },
    ),
    "deepseek v3": (
        "DeepseekV3Config",
        {
            **LIKE_DEEPSEEK,
            "q_lora_rank": 24,
            "n_group": 4,
            "topk_group": 2,
            "rope_parameters": {**YARN_THERE, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
}


@torch.no_grad()
def randomise(model: torch.nn.Module) -> None:
    """Every value random, biases of routers too, and routers decided enough that rounding changes no choice."""
    generator = torch.Generator().manual_seed(0)
    for name, value in model.state_dict().items():
        noise = torch.randn(value.shape, generator=generator)
        value.copy_(1 + 0.1 * noise if "norm" in name else 0.3 * noise)


def build(settings: dict[str, Any]) -> Decoder:
    model = Decoder(ModelConfig.model_validate({**SHAPE, **settings}))
    randomise(model)
    return model


def load_there(transformers: Any, folder: Path) -> Any:
    options = {"dtype": torch.float32, "attn_implementation": "eager"}
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **options)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    return model.eval()


def random_tokens(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(0, 97, (2, length), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def assert_same_logits(ours: Decoder, theirs: Any) -> None:
    tokens = random_tokens()
    expected = theirs(tokens).logits
    assert expected.std() > 0.1
    assert (ours(tokens) - expected).abs().max() < TOLERANCE


def assert_same_gradient(ours: Decoder, theirs: Any) -> None:
    """Of the loss by the embedding, which has come through every layer."""
    tokens = random_tokens()
    for logits in (ours(tokens), theirs(tokens).logits):
        F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    expected = theirs.model.embed_tokens.weight.grad
    torch.testing.assert_close(
        ours.embed_tokens.weight.grad, expected, atol=TOLERANCE * float(expected.std()), rtol=1e-4
    )


@torch.no_grad()
def assert_same_continuation(ours: Decoder, theirs: Any, num_tokens: int = 10) -> None:
    """Greedy: ours from the cache, theirs by reading everything again."""
    tokens = random_tokens(LENGTH - num_tokens)
    cache, unread = KeyValueCache(ours.config.num_layers, LENGTH), tokens
    for _ in range(num_tokens):
        unread = ours(unread, cache)[:, -1:].argmax(-1)
        assert torch.equal(unread, theirs(tokens).logits[:, -1:].argmax(-1))
        tokens = torch.cat((tokens, unread), 1)


@pytest.mark.parametrize("case", OURS)
def test_what_we_export_is_the_same_model_there_and_back(case: str, transformers: Any, tmp_path: Path) -> None:
    architecture, settings = OURS[case]
    ours = build(settings)
    assert write_model(tmp_path, ours, max_positions=64).architecture == architecture
    theirs = load_there(transformers, tmp_path)
    assert type(theirs).__name__ == architecture
    assert_same_logits(ours, theirs)
    assert_same_continuation(ours, theirs)

    config, state = load_hf(tmp_path)
    assert computed(config) == computed(ours.config)
    held = ours.state_dict()
    assert all(torch.equal(state[name], value) for name, value in held.items())
    assert all("balance_bias" in name and not state[name].any() for name in state.keys() - held.keys())


@pytest.mark.parametrize("case", THEIRS)
def test_what_they_save_is_the_same_model_here_and_back(case: str, transformers: Any, tmp_path: Path) -> None:
    config_class, settings = THEIRS[case]
    there = transformers.AutoModelForCausalLM.from_config(
        getattr(transformers, config_class)(**settings), attn_implementation="eager"
    ).eval()
    randomise(there)
    there.save_pretrained(tmp_path / "theirs")
    config, state = load_hf(tmp_path / "theirs")
    ours = Decoder(config)
    ours.load_state_dict(state)
    assert_same_logits(ours, there)
    assert_same_gradient(ours, there)

    write_model(tmp_path / "theirs", ours, max_positions=64)
    back = load_there(transformers, tmp_path / "theirs").state_dict()
    assert all(torch.equal(back[name], value) for name, value in there.state_dict().items())


def test_files_have_a_matrix_for_each_expert_under_its_published_name(tmp_path: Path) -> None:
    write_model(tmp_path, build(OURS["mixtral"][1]), max_positions=64)
    with safe_open(tmp_path / "model.safetensors", "pt") as weights:
        assert weights.get_slice("model.layers.2.block_sparse_moe.experts.7.w2.weight").get_shape() == [48, 28]
    write_model(tmp_path, build(OURS["deepseek v3"][1]), max_positions=64)
    with safe_open(tmp_path / "model.safetensors", "pt") as weights:
        assert weights.get_slice("model.layers.2.mlp.experts.7.down_proj.weight").get_shape() == [48, 28]
        assert weights.get_slice("model.layers.2.mlp.gate.e_score_correction_bias").get_shape() == [8]


PUBLISHED: dict[str, dict[str, Any]] = {
    "deepseek-v3": {
        "model_type": "deepseek_v3",
        "vocab_size": 129280,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "first_k_dense_replace": 3,
        "moe_layer_freq": 1,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "n_group": 8,
        "topk_group": 4,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "rms_norm_eps": 1e-06,
        "rope_theta": 10000,
        "rope_scaling": {
            "type": "yarn",
            "factor": 40,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe",
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "rope_scaling": None,
        "sliding_window": None,
        "use_sliding_window": False,
    },
}
"""What `config.json` of the published models says, where it says what is computed."""


@pytest.mark.parametrize("preset", PUBLISHED)
def test_published_settings_are_those_of_the_preset(preset: str) -> None:
    settings = PUBLISHED[preset]
    expected = computed(ModelConfig.model_validate({"preset": preset}))
    assert computed(read_config(layout_of(settings), settings)) == expected


@pytest.mark.parametrize(
    ("preset", "model_type"),
    [
        ("mixtral-8x7b", "mixtral"),
        ("qwen3-30b-a3b", "qwen3_moe"),
        ("deepseek-v2-lite", "deepseek_v2"),
        ("deepseek-v3", "deepseek_v3"),
    ],
)
def test_published_shapes_go_where_they_came_from(preset: str, model_type: str) -> None:
    assert layout_for(ModelConfig.model_validate({"preset": preset})).model_type == model_type


def test_the_module_for_multi_token_prediction_is_left_out(tmp_path: Path) -> None:
    ours = build(OURS["deepseek v3"][1])
    write_model(tmp_path, ours, max_positions=64)
    weights = load_file(tmp_path / "model.safetensors")
    third = {name: value for name, value in weights.items() if "layers.2." in name}
    fourth = {name.replace("layers.2.", "layers.3."): value.clone() for name, value in third.items()}
    save_file({**weights, **fourth}, tmp_path / "model.safetensors")
    assert load_hf(tmp_path)[1].keys() == ours.state_dict().keys()


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"moe": {**EXPERTS, "router": "sigmoid"}}, "moe"),
        ({"moe": {**EXPERTS, "bias_update_rate": 0.001}}, "moe"),
        ({**MLA, "moe": {**EXPERTS, **SIGMOID, "num_shared_experts": 0}}, "moe"),
        ({**MLA, "sliding_window": 8}, "sliding_window"),
    ],
)
def test_a_model_that_no_architecture_holds_is_refused(settings: dict[str, Any], missing: str) -> None:
    with pytest.raises(ConfigError, match=rf"lacks .*model\.{missing} = "):
        layout_for(ModelConfig.model_validate({**SHAPE, **settings}))


@pytest.mark.parametrize(
    ("case", "changed", "message"),
    [
        ("deepseek v3", {"rope_interleave": False}, "rope_interleave False"),
        ("deepseek v3", {"attention_bias": True}, "attention_bias True"),
        ("deepseek v3", {"moe_layer_freq": 2}, "moe_layer_freq 2"),
        ("deepseek v2 lite", {"topk_method": "noaux_tc"}, "topk_method 'noaux_tc'"),
        ("qwen3", {"mlp_only_layers": [1]}, r"mlp_only_layers \[1\]"),
        ("qwen3", {"decoder_sparse_step": 2}, "decoder_sparse_step 2"),
        ("mixtral", {"num_experts_per_tok": 9}, "experts_per_token: 9 are more than the 8"),
    ],
)
def test_a_model_we_do_not_have_is_not_imported(
    case: str, changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    write_model(tmp_path, build(OURS[case][1]), max_positions=64)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changed}), "utf-8")
    with pytest.raises(ConfigError, match=message):
        load_hf(tmp_path)
