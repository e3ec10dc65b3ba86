"""Dense models of `transformers` here and ours there: the same weights, logits, gradients and continuations."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_trainer.hf import load_hf
from tokenmill_trainer.hf.architectures import computed, layout_for, layout_of
from tokenmill_trainer.hf.writing import hf_model, write_model
from tokenmill_trainer.model import Decoder, ModelConfig
from tokenmill_trainer.model.kv_cache import KeyValueCache

TOLERANCE = 3e-5
"""Of logits up to 6: in fp32 theirs are up to 1.4e-5 from those in fp64, and ours up to 1.3e-5."""
LENGTH = 32
LLAMA_3_1 = {"kind": "llama3", "factor": 8, "original_positions": 16}
YARN = {"kind": "yarn", "factor": 4, "original_positions": 16}
GPT2 = {
    "position": "learned",
    "max_positions": 64,
    "norm": "layernorm",
    "activation": "gelu",
    "attention_bias": "all",
    "mlp_bias": True,
    "num_kv_heads": None,
}
GEMMA2 = {
    "head_dim": 16,
    "attention_soft_cap": 5.0,
    "logit_soft_cap": 3.0,
    "sliding_window": 8,
    "global_every": 2,
    "norm_placement": "sandwich",
    "norm_offset": True,
    "activation": "geglu",
    "embedding_scale": 48**0.5,
    "attention_scale": 20**-0.5,
    "tied_embeddings": True,
}
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {"rope_theta": 5e5}),
    "llama, tied": ("LlamaForCausalLM", {"tied_embeddings": True}),
    "llama, biases, geglu": ("LlamaForCausalLM", {"attention_bias": "all", "mlp_bias": True, "activation": "geglu"}),
    "llama 3.1": ("LlamaForCausalLM", {"rope_scaling": LLAMA_3_1}),
    "llama, yarn": ("LlamaForCausalLM", {"rope_scaling": YARN, "head_dim": 32}),
    "llama, yarn of another magnitude": ("LlamaForCausalLM", {"rope_scaling": {**YARN, "mscale": 0.5}}),
    "mistral": ("MistralForCausalLM", {"sliding_window": 8, "num_kv_heads": 1}),
    "qwen2": ("Qwen2ForCausalLM", {"attention_bias": "qkv", "tied_embeddings": True}),
    "qwen3": ("Qwen3ForCausalLM", {"qk_norm": "head", "head_dim": 16, "norm_eps": 1e-6}),
    "olmo2": ("Olmo2ForCausalLM", {"qk_norm": "full", "norm_placement": "post"}),
    "gemma2": ("Gemma2ForCausalLM", GEMMA2),
    "gpt2": ("GPT2LMHeadModel", {**GPT2, "tied_embeddings": True}),
    "gpt2, untied": ("GPT2LMHeadModel", GPT2),
}
LIKE_LLAMA = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
YARN_THERE = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", LIKE_LLAMA),
    "llama, tied, biases": ("LlamaConfig", {**LIKE_LLAMA, "tie_word_embeddings": True, "attention_bias": True}),
    "llama 3.1": (
        "LlamaConfig",
        {
            **LIKE_LLAMA,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 5e5,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            },
        },
    ),
    "llama, yarn": ("LlamaConfig", {**LIKE_LLAMA, "rope_parameters": YARN_THERE}),
    "llama, yarn by mscale": (
        "LlamaConfig",
        {**LIKE_LLAMA, "rope_parameters": {**YARN_THERE, "mscale": 1.0, "mscale_all_dim": 0.5}},
    ),
    "mistral": ("MistralConfig", {**LIKE_LLAMA, "sliding_window": 8}),
    "mistral without a window": ("MistralConfig", {**LIKE_LLAMA, "sliding_window": None}),
    "qwen2": ("Qwen2Config", LIKE_LLAMA),
    "qwen3": ("Qwen3Config", {**LIKE_LLAMA, "head_dim": 16}),
    "olmo2": ("Olmo2Config", LIKE_LLAMA),
    "gemma2": ("Gemma2Config", {**LIKE_LLAMA, "head_dim": 16, "query_pre_attn_scalar": 12, "sliding_window": 8}),
    "gpt2": ("GPT2Config", {"vocab_size": 97, "n_positions": 64, "n_embd": 48, "n_layer": 3, "n_head": 6}),
}


@torch.no_grad()
def randomise(model: torch.nn.Module) -> None:
    """No parameter, norm and bias included, keeps the value that it starts from."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn(parameter.shape))


def build(**settings: Any) -> Decoder:
    shape = {"hidden_size": 48, "intermediate_size": 80, "num_layers": 4, "num_heads": 6, "num_kv_heads": 2}
    model = Decoder(ModelConfig.model_validate({"vocab_size": 97, **shape, **settings}))
    with torch.no_grad():
        for value in (value for value in model.parameters() if value.ndim > 1):
            value.zero_()
    randomise(model)
    return model


def random_tokens(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(0, 97, (2, length), generator=torch.Generator().manual_seed(1))


def load_there(transformers: Any, folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


@torch.no_grad()
def assert_same_continuation(ours: Decoder, theirs: Any, num_tokens: int = 12) -> None:
    """Greedy: ours from the cache, theirs by reading everything again."""
    tokens = random_tokens(LENGTH - num_tokens)
    cache, unread = KeyValueCache(ours.config.num_layers, LENGTH), tokens
    for _ in range(num_tokens):
        unread = ours(unread, cache)[:, -1:].argmax(-1)
        assert torch.equal(unread, theirs(tokens).logits[:, -1:].argmax(-1))
        tokens = torch.cat((tokens, unread), 1)


def without_scaling(config: ModelConfig) -> dict[str, Any]:
    return {name: value for name, value in computed(config).items() if name != "rope_scaling"}


def scaling(config: ModelConfig) -> dict[str, Any]:
    return config.rope_scaling.model_dump() if config.rope_scaling else {}


@pytest.mark.parametrize("name", OURS)
def test_ours_there(transformers: Any, tmp_path: Path, name: str) -> None:
    architecture, settings = OURS[name]
    ours = build(**settings)
    write_model(tmp_path, ours, max_positions=64)
    theirs = load_there(transformers, tmp_path)
    assert type(theirs).__name__ == architecture
    with torch.no_grad():
        torch.testing.assert_close(
            ours(random_tokens()), theirs(random_tokens()).logits, atol=TOLERANCE, rtol=TOLERANCE
        )
    assert_same_continuation(ours, theirs)

    config, state = load_hf(tmp_path)
    assert without_scaling(config) == pytest.approx(without_scaling(ours.config))
    assert scaling(config) == pytest.approx(scaling(ours.config))
    weights = ours.state_dict()
    assert state.keys() == weights.keys()
    assert all(torch.equal(state[name], value) for name, value in weights.items())


@pytest.mark.parametrize("name", THEIRS)
def test_theirs_here(transformers: Any, tmp_path: Path, name: str) -> None:
    config_class, settings = THEIRS[name]
    theirs_config = getattr(transformers, config_class)(**settings)
    theirs = transformers.AutoModelForCausalLM.from_config(theirs_config, attn_implementation="eager").eval()
    randomise(theirs)
    theirs.save_pretrained(tmp_path)
    config, state = load_hf(tmp_path)
    ours = Decoder(config)
    ours.load_state_dict(state)
    logits, their_logits = ours(random_tokens()), theirs(random_tokens()).logits
    torch.testing.assert_close(logits, their_logits, atol=TOLERANCE, rtol=TOLERANCE)

    losses = [
        F.cross_entropy(each[:, :-1].flatten(0, 1), random_tokens()[:, 1:].flatten()) for each in (logits, their_logits)
    ]
    torch.testing.assert_close(losses[0], losses[1], atol=1e-6, rtol=1e-6)
    for loss in losses:
        loss.backward()
    layout = layout_of(theirs_config.to_dict())
    expected = layout.read_state(config, {name: value.grad for name, value in theirs.named_parameters()})
    for parameter_name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[parameter_name], atol=TOLERANCE, rtol=1e-4)
    assert_same_continuation(ours, theirs)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"attention_bias": "all"},
        {"qk_norm": "head"},
        {"norm_offset": True, "norm_placement": "sandwich", "activation": "geglu", "embedding_scale": 48**0.5},
    ],
)
def test_mup_is_folded_into_the_weights(transformers: Any, tmp_path: Path, settings: dict[str, Any]) -> None:
    ours = build(mup_base_width=16, **settings)
    write_model(tmp_path, ours, max_positions=64)
    with torch.no_grad():
        logits = load_there(transformers, tmp_path)(random_tokens()).logits
        torch.testing.assert_close(ours(random_tokens()), logits, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"activation": "relu2"}, "the nearest, LlamaForCausalLM, lacks model.activation = relu2"),
        ({"rope_fraction": 0.5}, "lacks model.rope_fraction = 0.5"),
        ({"sliding_window": 8, "global_every": 2}, "the nearest, MistralForCausalLM, lacks model.global_every = 2"),
        ({**GPT2, "norm": "rmsnorm"}, "the nearest, GPT2LMHeadModel, lacks model.norm = rmsnorm"),
    ],
)
def test_what_no_architecture_has_is_not_exported(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        hf_model(build(**settings))


def test_published_shapes_go_where_they_came_from() -> None:
    from tokenmill_trainer.model.presets import DENSE_PRESETS

    for name in DENSE_PRESETS.keys() - {"tiny"}:
        model_type = layout_for(ModelConfig.model_validate({"preset": name})).model_type
        assert model_type in name.replace("-", ""), name


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    write_model(tmp_path, build(), max_positions=64)
    return tmp_path


def change_config(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def test_weights_in_several_files_are_one_model(saved: Path) -> None:
    whole = load_file(saved / "model.safetensors")
    (saved / "model.safetensors").unlink()
    names = sorted(whole)
    files = {"model-1.safetensors": names[:5], "model-2.safetensors": names[5:]}
    for file, part in files.items():
        save_file({name: whole[name] for name in part}, saved / file)
    index = {"weight_map": {name: file for file, part in files.items() for name in part}}
    (saved / "model.safetensors.index.json").write_text(json.dumps(index))
    _, state = load_hf(saved)
    assert all(torch.equal(value, build().state_dict()[name]) for name, value in state.items())

    index["weight_map"][names[0]] = "../elsewhere.safetensors"
    (saved / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match="is no safetensors file beside it"):
        load_hf(saved)


def test_gpt2_as_openai_published_it_is_read(tmp_path: Path) -> None:
    ours = build(**GPT2, tied_embeddings=True)
    write_model(tmp_path, ours, max_positions=64)
    stored = load_file(tmp_path / "model.safetensors")
    bare = {name.removeprefix("transformer."): value for name, value in stored.items()}
    masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, 64, 64).tril() for layer in range(4)}
    save_file({**bare, **masks, "lm_head.weight": bare["wte.weight"].clone()}, tmp_path / "model.safetensors")
    _, state = load_hf(tmp_path)
    assert state.keys() == ours.state_dict().keys()
    assert all(torch.equal(value, ours.state_dict()[name]) for name, value in state.items())


def test_a_setting_that_is_missing_is_named(saved: Path) -> None:
    settings = json.loads((saved / "config.json").read_text())
    del settings["hidden_size"]
    (saved / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=r"config\.json: hidden_size is missing; a llama needs it"):
        load_hf(saved)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "bloom"}, "model_type 'bloom' cannot be imported; what can: llama, mistral"),
        ({"hidden_act": "relu"}, "hidden_act 'relu' cannot be imported; what can: 'silu', 'gelu_pytorch_tanh'"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "rope_type 'longrope' cannot be imported"),
        ({"quantization_config": {"bits": 4}}, "quantised weights cannot be imported"),
        (
            {"num_attention_heads": 7},
            "config.json, a llama as settings of ours: num_heads: 7 must divide hidden_size 48",
        ),
        ({"hidden_size": "wide"}, "config.json, a llama as settings of ours: hidden_size: Input should be a valid int"),
        ({"num_hidden_layers": 5}, "num_hidden_layers is 5, but the weights are those of 4 layers"),
        ({"num_hidden_layers": 3}, "9 not of this model: layers.3.input_layernorm.weight"),
        ({"vocab_size": 98}, "2 of another shape: embed_tokens.weight, lm_head.weight"),
    ],
)
def test_what_cannot_be_imported_is_refused_by_name(saved: Path, settings: dict[str, Any], message: str) -> None:
    change_config(saved, **settings)
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_hf(saved)


def test_files_that_are_missing_broken_or_pickles_are_refused(saved: Path, tmp_path: Path) -> None:
    weights = saved / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"model\.safetensors: cannot be read"):
        load_hf(saved)
    weights.rename(saved / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"has no model\.safetensors; weights in other formats are not read"):
        load_hf(saved)
    (saved / "config.json").unlink()
    with pytest.raises(InputError, match=r"config\.json: cannot be read"):
        load_hf(saved)
