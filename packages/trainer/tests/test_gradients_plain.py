"""Losses and gradients of what no model of `transformers` has, against its definition written once more, in fp64.

    weights (fp64) ─ plain_logits, one head and one layer at a time ─ log softmax ─▶ gradients  ┐
    weights (fp32) ─ training_loss_sums ─▶ gradients ───────────────────────────────────────────┴▶ equal

Legend: B batch, L length, D hidden size, d head size, E experts.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tokenmill_trainer.loss import IGNORED, LossConfig, training_loss_sums
from tokenmill_trainer.model import Decoder, ModelConfig
from tokenmill_trainer.model.router import Router

LENGTH, VOCABULARY = 24, 97
LEARNED = {"position": "learned", "max_positions": LENGTH}
VARIANTS: dict[str, dict[str, Any]] = {
    "mup": {"mup_base_width": 16, "tied_embeddings": True},
    "mup, learned positions, layernorm": {"mup_base_width": 24, **LEARNED, "norm": "layernorm", "activation": "gelu"},
    "squared relu, biases": {"activation": "relu2", "mlp_bias": True, "attention_bias": "qkv"},
    "gelu, rmsnorm, biases": {"activation": "gelu", "mlp_bias": True, "attention_bias": "all"},
    "geglu, norms on both sides, layernorm": {"activation": "geglu", "norm_placement": "sandwich", "norm": "layernorm"},
    "part of the head turned": {"rope_fraction": 0.5, "rope_theta": 500.0, "qk_norm": "full"},
    "learned positions, window, caps": {
        **LEARNED,
        "sliding_window": 5,
        "global_every": 2,
        "attention_soft_cap": 2.0,
        "logit_soft_cap": 3.0,
    },
    "norms behind, offset, qk-norm": {"norm_placement": "post", "norm_offset": True, "qk_norm": "head"},
    "scaled embeddings and scores": {"embedding_scale": 3.0, "attention_scale": 0.5, "num_kv_heads": 1},
}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "swiglu": lambda x: x * torch.sigmoid(x),
    "geglu": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu2": lambda x: torch.where(x > 0, x * x, 0.0),
}
ACTIVATIONS["gelu"] = ACTIVATIONS["geglu"]
NORMS = {
    "pre": ("input_layernorm", "", "post_attention_layernorm", ""),
    "post": ("", "post_attention_layernorm", "", "post_feedforward_layernorm"),
    "sandwich": (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
}

State = dict[str, Tensor]


@torch.no_grad()
def build(**settings: Any) -> Decoder:
    """A model none of whose parameters is what it starts from."""
    shape = {"hidden_size": 48, "intermediate_size": 80, "num_layers": 3, "num_heads": 6, "num_kv_heads": 2}
    model = Decoder(ModelConfig.model_validate({"vocab_size": VOCABULARY, **shape, **settings}))
    generator = torch.Generator().manual_seed(0)
    for name, value in model.named_parameters():
        is_factor = "norm" in name and name.endswith("weight") and not model.config.norm_offset
        value.copy_(is_factor + 0.2 * torch.randn(value.shape, generator=generator))
    return model


def tokens_and_labels() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, VOCABULARY, (2, LENGTH + 1), generator=generator)
    labels = tokens[:, 1:].clone()
    labels[:, ::5] = IGNORED
    return tokens[:, :-1], labels


def project(state: State, name: str, x: Tensor) -> Tensor:
    y = x @ state[f"{name}.weight"].T
    return y + state[f"{name}.bias"] if f"{name}.bias" in state else y


def normed(config: ModelConfig, state: State, name: str, x: Tensor) -> Tensor:
    if name not in {key.rpartition(".")[0] for key in state}:
        return x
    weight = state[f"{name}.weight"] + config.norm_offset
    if config.norm == "layernorm":
        x = x - x.mean(-1, keepdim=True)
    y = x / (x.square().mean(-1, keepdim=True) + config.norm_eps).sqrt() * weight
    return y + state[f"{name}.bias"] if f"{name}.bias" in state else y


def turned(config: ModelConfig, x_BLd: Tensor) -> Tensor:
    """Pair i of the head's first `rope_fraction` turned by position · θ^(−2i / size), as complex numbers."""
    size = int(config.head_size * config.rope_fraction)
    pairs = torch.complex(x_BLd[..., : size // 2], x_BLd[..., size // 2 : size])
    rates = config.rope_theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    phases = torch.arange(x_BLd.shape[1], dtype=torch.float64)[:, None] * rates
    pairs = pairs * torch.polar(torch.ones_like(phases), phases)
    return torch.cat((pairs.real, pairs.imag, x_BLd[..., size:]), -1)


def attended(config: ModelConfig, state: State, layer: int, x_BLD: Tensor) -> Tensor:
    prefix, d = f"layers.{layer}.self_attn", config.head_size
    q, k, v = (project(state, f"{prefix}.{name}_proj", x_BLD) for name in "qkv")
    if config.qk_norm == "full":
        q, k = normed(config, state, f"{prefix}.q_norm", q), normed(config, state, f"{prefix}.k_norm", k)
    offsets = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    is_global = config.global_every is not None and layer % config.global_every == config.global_every - 1
    window = LENGTH if config.sliding_window is None or is_global else config.sliding_window
    seen = (offsets >= 0) & (offsets < window)
    scale = config.attention_scale or (1 / d if config.mup_base_width else 1 / math.sqrt(d))
    heads = []
    for head in range(config.num_heads):
        group = head // (config.num_heads // config.kv_heads)
        q_BLd, k_BLd, v_BLd = q[..., head * d :][..., :d], k[..., group * d :][..., :d], v[..., group * d :][..., :d]
        if config.qk_norm == "head":
            q_BLd = normed(config, state, f"{prefix}.q_norm", q_BLd)
            k_BLd = normed(config, state, f"{prefix}.k_norm", k_BLd)
        if config.position == "rope":
            q_BLd, k_BLd = turned(config, q_BLd), turned(config, k_BLd)
        scores = q_BLd @ k_BLd.transpose(1, 2) * scale
        if config.attention_soft_cap:
            scores = config.attention_soft_cap * torch.tanh(scores / config.attention_soft_cap)
        weights = scores.exp() * seen
        heads.append(weights / weights.sum(-1, keepdim=True) @ v_BLd)
    return project(state, f"{prefix}.o_proj", torch.cat(heads, -1))


def fed_forward(config: ModelConfig, state: State, layer: int, x: Tensor) -> Tensor:
    prefix, activation = f"layers.{layer}.mlp", ACTIVATIONS[config.activation]
    inner = project(state, f"{prefix}.up_proj", x)
    gated = config.activation in ("swiglu", "geglu")
    inner = activation(project(state, f"{prefix}.gate_proj", x)) * inner if gated else activation(inner)
    return project(state, f"{prefix}.down_proj", inner)


def plain_logits(config: ModelConfig, state: State, tokens_BL: Tensor) -> Tensor:
    x = state["embed_tokens.weight"][tokens_BL] * (config.embedding_scale or 1.0)
    if config.position == "learned":
        x = x + state["embed_positions.weight"][: tokens_BL.shape[1]]
    for layer in range(config.num_layers):
        names = [f"layers.{layer}.{name}" if name else "" for name in NORMS[config.norm_placement]]
        x = x + normed(config, state, names[1], attended(config, state, layer, normed(config, state, names[0], x)))
        x = x + normed(config, state, names[3], fed_forward(config, state, layer, normed(config, state, names[2], x)))
    head = state.get("lm_head.weight", state["embed_tokens.weight"])
    logits = normed(config, state, "norm", x) @ head.T * ((config.mup_base_width or 48) / 48)
    return config.logit_soft_cap * torch.tanh(logits / config.logit_soft_cap) if config.logit_soft_cap else logits


def assert_same(model: Decoder, expected: State) -> None:
    """To 1e-4 of each number, 1e-5 of the largest of its tensor and 1e-6 of the largest of all."""
    largest = max(float(value.abs().max()) for value in expected.values())
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        atol = 1e-5 * float(expected[name].abs().max()) + 1e-6 * largest
        close = torch.isclose(parameter.grad.double(), expected[name].double(), rtol=1e-4, atol=atol)
        assert close.all(), name
    model.zero_grad()


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_are_those_of_the_definition(variant: str) -> None:
    model, (tokens, labels) = build(**VARIANTS[variant]), tokens_and_labels()
    state = {name: value.detach().double().requires_grad_() for name, value in model.named_parameters()}
    logits = plain_logits(model.config, state, tokens)
    counted = labels != IGNORED
    loss = -logits.log_softmax(-1)[counted].gather(-1, labels[counted][:, None]).sum()
    gradients = torch.autograd.grad(loss, list(state.values()))
    for chunk_tokens in (0, 20):
        total = training_loss_sums(model, tokens, labels, None, LossConfig(chunk_tokens=chunk_tokens)).total
        assert float(total.detach()) == pytest.approx(float(loss.detach()), rel=1e-6)
        total.backward()  # type: ignore[no-untyped-call]
        assert_same(model, dict(zip(state, gradients, strict=True)))


@pytest.mark.parametrize("over", ["sequence", "micro_batch"])
@pytest.mark.parametrize("router", ["softmax", "sigmoid"])
def test_the_routers_losses_have_the_gradients_of_their_formulas(router: str, over: str) -> None:
    """0.3 · E · Σ_e share of tokens · mean probability, and 0.2 · mean of log²Z, of every layer with experts."""
    experts = {"num_experts": 8, "experts_per_token": 3, "expert_intermediate_size": 28, "num_dense_layers": 1}
    balancing = {"router": router, "aux_loss": 0.3, "aux_loss_over": over, "z_loss": 0.2}
    model = build(moe={**experts, **balancing})
    read: list[tuple[Router, Tensor, Tensor]] = []
    for layer in model.routers:
        layer.register_forward_hook(lambda module, inputs, outputs: read.append((module, inputs[0], outputs[1])))
    model(tokens_and_labels()[0])
    expected = torch.zeros(())
    for layer, x_BLD, experts_BLk in read:
        logits_BLE = x_BLD @ layer.weight.T
        scores = logits_BLE.softmax(-1) if router == "softmax" else 1 / (1 + (-logits_BLE).exp())
        probabilities = scores / scores.sum(-1, keepdim=True)
        rows = [slice(None)] if over == "micro_batch" else [slice(row, row + 1) for row in range(len(x_BLD))]
        for row in rows:
            share_E = F.one_hot(experts_BLk[row], 8).double().mean((0, 1, 2))
            balance = 8 * (share_E * probabilities[row].mean((0, 1))).sum()
            expected = expected + 0.3 * balance / len(rows)
        expected = expected + 0.2 * logits_BLE.exp().sum(-1).log().square().mean()
    found = model.auxiliary_loss()
    assert found is not None
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    reached = [parameter for name, parameter in model.named_parameters() if not name.startswith(("norm", "lm_head"))]
    ours_and_theirs = (
        torch.autograd.grad(loss, reached, retain_graph=True, materialize_grads=True) for loss in (found, expected)
    )
    for ours, theirs in zip(*ours_and_theirs, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max()))
