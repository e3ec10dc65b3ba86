"""Losses and gradients of every variant, by each way that training takes, against `transformers`.

    weights ─ export ─▶ transformers, eager, fp32 ─ F.cross_entropy ─▶ gradients          ┐
       └─ training_loss_sums, chunked or whole; Engine ─▶ gradients ─ export, as weights ─┴▶ equal

Exports rename, reorder, split and join, all of which is linear, so gradients go through them as weights do.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from tokenmill_shards.reading.samples import Samples
from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.hf.writing import write_model
from tokenmill_trainer.loss import IGNORED, LossConfig, training_loss_sums
from tokenmill_trainer.model import Decoder, ModelConfig

BATCH, LENGTH, VOCABULARY = 4, 32, 97
EXPERTS = {"num_experts": 8, "experts_per_token": 3, "expert_intermediate_size": 28}
LATENT = {"kv_rank": 20, "nope_head_dim": 10, "rope_head_dim": 8, "v_head_dim": 14}
MLA = {"attention": "mla", "mla": LATENT, "norm_eps": 1e-6, "num_kv_heads": None}
YARN = {"kind": "yarn", "factor": 40.0, "original_positions": 16, "mscale": 1.0, "mscale_all_dim": 1.0}
GROUPS = {"num_groups": 4, "groups_per_token": 2, "num_dense_layers": 1}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": (
        "GPT2LMHeadModel",
        {
            "position": "learned",
            "max_positions": LENGTH,
            "norm": "layernorm",
            "activation": "gelu",
            "attention_bias": "all",
            "mlp_bias": True,
            "num_kv_heads": None,
            "tied_embeddings": True,
        },
    ),
    "llama 3.1": ("LlamaForCausalLM", {"rope_scaling": {"kind": "llama3", "factor": 8, "original_positions": 16}}),
    "mistral": ("MistralForCausalLM", {"sliding_window": 8, "num_kv_heads": 1}),
    "qwen2": ("Qwen2ForCausalLM", {"attention_bias": "qkv", "tied_embeddings": True}),
    "qwen3": ("Qwen3ForCausalLM", {"qk_norm": "head", "head_dim": 16, "norm_eps": 1e-6}),
    "olmo2": ("Olmo2ForCausalLM", {"qk_norm": "full", "norm_placement": "post"}),
    "gemma2": (
        "Gemma2ForCausalLM",
        {
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
        },
    ),
    "mixtral": ("MixtralForCausalLM", {"moe": EXPERTS, "sliding_window": 8}),
    "qwen3-moe": (
        "Qwen3MoeForCausalLM",
        {"qk_norm": "head", "head_dim": 16, "moe": {**EXPERTS, "normalise_gates": False, "num_dense_layers": 1}},
    ),
    "deepseek-v2": (
        "DeepseekV2ForCausalLM",
        {**MLA, "moe": {**EXPERTS, **GROUPS, "num_shared_experts": 2, "normalise_gates": False, "gate_scale": 2.0}},
    ),
    "deepseek-v3": (
        "DeepseekV3ForCausalLM",
        {
            **MLA,
            "mla": {**LATENT, "q_rank": 24},
            "rope_scaling": YARN,
            "moe": {
                **EXPERTS,
                **GROUPS,
                "router": "sigmoid",
                "num_shared_experts": 1,
                "gate_scale": 2.5,
                "bias_update_rate": 0.001,
            },
        },
    ),
}
DOCUMENTS = [13, 1, 18]

Gradients = dict[str, Tensor]


def model_config(variant: str) -> ModelConfig:
    shape = {"hidden_size": 48, "intermediate_size": 80, "num_layers": 3, "num_heads": 6, "num_kv_heads": 2}
    return ModelConfig.model_validate({"vocab_size": VOCABULARY, **shape, **VARIANTS[variant][1]})


@torch.no_grad()
def build(variant: str) -> Decoder:
    """No value is what it starts from, and routers are decided enough that rounding changes no choice."""
    model, generator = Decoder(model_config(variant)), torch.Generator().manual_seed(0)
    for name, value in model.state_dict().items():
        noise = torch.randn(value.shape, generator=generator)
        is_factor = "norm" in name and name.endswith("weight") and not model.config.norm_offset
        value.copy_(1 + 0.1 * noise if is_factor else 0.2 * noise)
    return model


def tokens_and_labels() -> tuple[Tensor, Tensor]:
    """(B, L) each; of the labels every fifth is ignored, and all of one row."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
    inputs, labels = tokens[:, :-1], tokens[:, 1:].clone()
    labels[:, ::5] = IGNORED
    labels[2] = IGNORED
    return inputs, labels


class TheseTokens:
    """The same as a source of samples."""

    def samples(self, indices: NDArray[np.int64]) -> Samples:
        inputs, labels = tokens_and_labels()
        last = torch.where(labels[:, -1:] == IGNORED, 0, labels[:, -1:])
        return Samples(torch.cat((inputs, last), 1).numpy()[indices], (labels != IGNORED).numpy()[indices])


def gradients_of(model: torch.nn.Module) -> Gradients:
    found = {}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        found[name] = parameter.grad.clone()
    model.zero_grad()
    return found


def by_loss_sums(model: Decoder, chunk_tokens: int, positions: Tensor | None = None) -> tuple[Tensor, Gradients]:
    total = training_loss_sums(model, *tokens_and_labels(), positions, LossConfig(chunk_tokens=chunk_tokens)).total
    total.backward()  # type: ignore[no-untyped-call]
    return total.detach(), gradients_of(model)


def by_engine(model: Decoder, **training: Any) -> tuple[Tensor, Gradients]:
    """The same sums from an engine, two micro-batches of which one counts less than the other."""
    num_counted = int((tokens_and_labels()[1] != IGNORED).sum())
    config = RunConfig.model_validate(
        {
            "model": model.config.model_dump(exclude={"preset"}),
            "data": {"sequence_length": LENGTH},
            "training": {"steps": 1, "global_batch_size": BATCH, "micro_batch_size": 2, "device": "cpu", **training},
        }
    )
    total = torch.zeros(())
    with initialize(config, GlobalBatches(TheseTokens(), BATCH)) as engine:
        engine.model.load_state_dict(model.state_dict())
        for batch in engine.batches():
            loss = engine(batch)
            engine.backward(loss)
            total += loss.detach() * num_counted
        return total, {name: value * num_counted for name, value in gradients_of(engine.model).items()}


WAYS: dict[str, Callable[[Decoder], tuple[Tensor, Gradients]]] = {
    "whole": lambda model: by_loss_sums(model, 0),
    "chunked": lambda model: by_loss_sums(model, 48),
    "engine": by_engine,
}


def load_there(transformers: Any, folder: Path) -> Any:
    # Some architectures have a token for padding unless told otherwise, and give its embedding no gradient.
    options = {"dtype": torch.float32, "attn_implementation": "eager", "pad_token_id": None}
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval()


def there(transformers: Any, folder: Path, config: ModelConfig, state: Gradients) -> Any:
    """A model of `transformers` that has `state`, weights or gradients, for its weights."""
    carrier = Decoder(config)
    unknown = carrier.load_state_dict(state, strict=False)
    assert all("balance_bias" in name for name in unknown.missing_keys)
    write_model(folder, carrier, max_positions=64)
    return load_there(transformers, folder)


def assert_same(found: Gradients, expected: Gradients) -> None:
    """To 1e-4 of each number, 1e-5 of the largest of its tensor and 1e-6 of the largest of all.

    Small ones are differences of large ones: biases of keys, which softmax does not see, have a gradient of nought.
    """
    assert found.keys() == expected.keys()
    largest = max(float(value.abs().max()) for value in expected.values())
    for name, value in expected.items():
        atol = 1e-5 * float(value.abs().max()) + 1e-6 * largest
        torch.testing.assert_close(found[name], value, atol=atol, rtol=1e-4, msg=f"{name} differs")


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_are_those_of_transformers(variant: str, transformers: Any, tmp_path: Path) -> None:
    ours = build(variant)
    theirs = there(transformers, tmp_path, ours.config, ours.state_dict())
    assert type(theirs).__name__ == VARIANTS[variant][0]
    inputs, labels = tokens_and_labels()
    logits = theirs(inputs, use_cache=False).logits
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")
    loss.backward()  # type: ignore[no-untyped-call]
    expected = gradients_of(theirs)
    for way in WAYS.values():
        total, gradients = way(ours)
        torch.testing.assert_close(total, loss.detach(), atol=0, rtol=1e-6)
        carried = there(transformers, tmp_path, ours.config, gradients)
        assert_same(dict(carried.named_parameters()), expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("chunk_tokens", [0, 48])
def test_rows_of_documents_have_losses_and_gradients_of_each_alone(variant: str, chunk_tokens: int) -> None:
    model, (inputs, labels) = build(variant), tokens_and_labels()
    positions = torch.cat([torch.arange(length, dtype=torch.int32) for length in DOCUMENTS]).expand(BATCH, -1)
    total, gradients = by_loss_sums(model, chunk_tokens, positions)
    parts = zip(torch.split(inputs, DOCUMENTS, 1), torch.split(labels, DOCUMENTS, 1), strict=True)
    alone = sum(training_loss_sums(model, *part, None, LossConfig(chunk_tokens=0)).total for part in parts)
    assert isinstance(alone, Tensor)
    alone.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(total, alone.detach(), atol=0, rtol=1e-6)
    assert_same(gradients, gradients_of(model))
    assert abs(float(by_loss_sums(model, chunk_tokens)[0] - total)) > 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_bf16_computes_them_to_its_rounding(variant: str) -> None:
    """bf16 rounds to 2⁻⁹ = 0.2 % of a number, some 20 times on the way through three layers and back.

    Dense gradients were found to be off by up to 5.8 % of a tensor's norm, losses, whose errors even out, by 0.12 %.
    Rounding sends some tokens to another expert, so with experts the whole gradient was off by up to 20 %.
    """
    model = build(variant)
    (loss, gradients), (rounded_loss, rounded) = by_engine(model), by_engine(model, precision="bf16")
    tolerance = 3e-3 if model.config.moe is None else 1e-2
    assert 0 < abs(float(rounded_loss - loss)) < tolerance * float(loss)
    if model.config.moe is None:
        size = norm(gradients)
        for name, value in gradients.items():
            assert (rounded[name] - value).norm() < 0.1 * value.norm() + 1e-3 * size, name
    else:
        assert norm({name: rounded[name] - value for name, value in gradients.items()}) < 0.35 * norm(gradients)


def norm(gradients: Gradients) -> float:
    return float(torch.linalg.vector_norm(torch.cat([value.flatten() for value in gradients.values()])))
