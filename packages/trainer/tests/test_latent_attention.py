"""Latent attention against a reference that goes head by head, and from its cache."""

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tokenmill_trainer.model import Decoder, ModelConfig
from tokenmill_trainer.model.init import initialize_weights
from tokenmill_trainer.model.kv_cache import KeyValueCache
from tokenmill_trainer.model.latent_attention import LatentAttention
from tokenmill_trainer.model.masks import attention_mask
from tokenmill_trainer.model.rotary import Rope, RotaryTable

LENGTH = 20
DIRECT = {"kv_rank": 12, "nope_head_dim": 10, "rope_head_dim": 6, "v_head_dim": 14}
COMPRESSED = {**DIRECT, "q_rank": 18}
LARGE_VALUES = {**DIRECT, "v_head_dim": 22}
YARN = {"kind": "yarn", "factor": 40.0, "original_positions": 8, "mscale": 0.7, "mscale_all_dim": 1.0}
VARIANTS: dict[str, dict[str, Any]] = {
    "direct": {"mla": DIRECT},
    "compressed": {"mla": COMPRESSED},
    "values larger than keys": {"mla": LARGE_VALUES},
    "yarn": {"mla": COMPRESSED, "rope_scaling": YARN},
    "soft cap": {"mla": COMPRESSED, "attention_soft_cap": 2.0},
    "window": {"mla": COMPRESSED, "sliding_window": 5},
}


def make_config(**settings: Any) -> ModelConfig:
    shape = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 40, "num_layers": 2, "num_heads": 4}
    return ModelConfig.model_validate({**shape, "attention": "mla", "init_std": 0.3, **settings})


def make_attention(config: ModelConfig) -> LatentAttention:
    attention = LatentAttention(config).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in attention.parameters():
            value.copy_(0.3 * torch.randn(value.shape, generator=generator) + (value.ndim == 1))
    return attention


def rope_of(config: ModelConfig) -> Rope:
    table = RotaryTable(config.rotary_size, config.rope_theta, config.rope_scaling)
    return table(0, LENGTH, torch.device("cpu"))


def normalised(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def turned(x_Lr: Tensor, rope: Rope) -> Tensor:
    """Pairs as complex numbers, times exp(i · phase)."""
    half = x_Lr.shape[-1] // 2
    numbers = torch.complex(x_Lr[:, :half].float(), x_Lr[:, half:].float()) * torch.complex(*rope)
    return torch.cat((numbers.real, numbers.imag), -1).double()


def head_by_head(attention: LatentAttention, config: ModelConfig, x_LD: Tensor) -> Tensor:
    assert config.mla is not None
    n, r, v = config.mla.nope_head_dim, config.mla.rope_head_dim, config.mla.v_head_dim
    c, rope = config.mla.kv_rank, rope_of(config)
    if config.mla.q_rank is None:
        q = x_LD @ attention.q_proj.weight.T
    else:
        q = normalised(x_LD @ attention.q_a_proj.weight.T, attention.q_a_layernorm.weight) @ attention.q_b_proj.weight.T
    kept = x_LD @ attention.kv_a_proj_with_mqa.weight.T
    latent, key = normalised(kept[:, :c], attention.kv_a_layernorm.weight), turned(kept[:, c:], rope)
    outputs = []
    for head in range(config.num_heads):
        query = q[:, head * (n + r) : (head + 1) * (n + r)]
        made = latent @ attention.kv_b_proj.weight[head * (n + v) : (head + 1) * (n + v)].T
        scores = (query[:, :n] @ made[:, :n].T + turned(query[:, n:], rope) @ key.T) / math.sqrt(n + r)
        if config.rope_scaling is not None:
            scores = scores * (0.1 * math.log(40) + 1) ** 2
        if config.attention_soft_cap is not None:
            scores = config.attention_soft_cap * (scores / config.attention_soft_cap).tanh()
        age = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
        visible = (age >= 0) & (age < (config.sliding_window or LENGTH))
        outputs.append(scores.masked_fill(~visible, -torch.inf).softmax(-1) @ made[:, n:])
    return torch.cat(outputs, -1) @ attention.o_proj.weight.T


@pytest.mark.parametrize("variant", VARIANTS)
def test_results_and_gradients_are_those_of_the_heads_one_by_one(variant: str) -> None:
    config = make_config(**VARIANTS[variant])
    attention = make_attention(config)
    x = torch.randn(1, LENGTH, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    mask = attention_mask(LENGTH, x.device, window=config.sliding_window)
    y, expected = attention(x, rope_of(config), mask, None, 0), head_by_head(attention, config, x[0])[None]
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=1e-5)  # positions turn in fp32
    wanted = [x, *attention.parameters()]
    for got, right in zip(
        torch.autograd.grad(y.square().sum(), wanted), torch.autograd.grad(expected.square().sum(), wanted), strict=True
    ):
        torch.testing.assert_close(got, right, atol=1e-3, rtol=1e-4)


def make_decoder(**settings: Any) -> Decoder:
    model = Decoder(make_config(**settings))
    initialize_weights(model, 0)
    return model


def random_tokens() -> Tensor:
    return torch.randint(0, 97, (2, LENGTH), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("prompt", [1, 7])
@torch.no_grad()
def test_reading_from_the_cache_gives_the_logits_of_the_whole_forward(variant: str, prompt: int) -> None:
    model, tokens = make_decoder(**VARIANTS[variant]), random_tokens()
    whole = model(tokens)
    cache = KeyValueCache(2, LENGTH)
    parts = [model(tokens[:, :prompt], cache)]
    parts += [model(tokens[:, place : place + 1], cache) for place in range(prompt, LENGTH)]
    assert whole.std() > 0.1
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_the_cache_holds_a_latent_and_one_turned_key_a_token() -> None:
    model, cache = make_decoder(mla=DIRECT), KeyValueCache(2, LENGTH)
    model(random_tokens()[:1], cache)
    assert cache.num_bytes == 2 * LENGTH * (12 + 6) * 4


@torch.no_grad()
def test_documents_apart_are_read_as_if_alone() -> None:
    model, tokens = make_decoder(mla=COMPRESSED), random_tokens()[:1]
    positions = torch.cat((torch.arange(8), torch.arange(LENGTH - 8))).int()[None]
    together = model(tokens, positions_BL=positions)
    torch.testing.assert_close(together[:, :8], model(tokens[:, :8]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(together[:, 8:], model(tokens[:, 8:]), atol=1e-5, rtol=1e-5)


def test_deepseek_v3_scales_scores_as_published() -> None:
    config = ModelConfig.model_validate({"preset": "deepseek-v3"})
    assert config.softmax_scale == pytest.approx(1.36889**2 / math.sqrt(192), rel=1e-5)
    assert config.rope_scaling is not None
    assert config.rope_scaling.table_factor == 1


@pytest.mark.parametrize(
    "settings", [{"qk_norm": "head"}, {"attention_bias": "qkv"}, {"position": "learned", "max_positions": 8}]
)
def test_what_latent_attention_does_not_have_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="mla: latent attention has no"):
        make_config(mla=DIRECT, **settings)
