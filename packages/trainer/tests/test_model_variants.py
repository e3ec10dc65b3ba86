"""Every variant of the decoder: generation by cache, documents kept apart, and attention against its definition."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from tokenmill_core.errors import ConfigError
from tokenmill_trainer import RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.model import Decoder, ModelConfig
from tokenmill_trainer.model.attention import attend
from tokenmill_trainer.model.feed_forward import FeedForward
from tokenmill_trainer.model.flex import block_mask
from tokenmill_trainer.model.kv_cache import KeyValueCache, cache_bytes_per_token
from tokenmill_trainer.model.masks import attention_mask, document_of

LENGTH = 32
CPU = torch.device("cpu")
VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {},
    "multi-query": {"num_kv_heads": 1},
    "window": {"sliding_window": 5},
    "alternating": {"sliding_window": 5, "global_every": 2},
    "qk-norm": {"qk_norm": "head"},
    "qk-norm of all heads, norms behind": {"qk_norm": "full", "norm_placement": "post"},
    "soft caps": {"attention_soft_cap": 2.0, "logit_soft_cap": 3.0, "sliding_window": 5, "global_every": 2},
    "gemma": {"norm_placement": "sandwich", "norm_offset": True, "activation": "geglu", "embedding_scale": 7.0},
    "gpt2": {
        "position": "learned",
        "max_positions": LENGTH,
        "norm": "layernorm",
        "activation": "gelu",
        "attention_bias": "all",
        "mlp_bias": True,
    },
    "squared relu, partial rope": {"activation": "relu2", "rope_fraction": 0.5, "attention_bias": "qkv"},
    "yarn": {"rope_scaling": {"kind": "yarn", "factor": 8, "original_positions": 16}},
    "mup": {"mup_base_width": 16},
}


def build(**settings: Any) -> Decoder:
    """A model none of whose parameters, biases and norms included, is what it starts from."""
    shape = {"hidden_size": 48, "intermediate_size": 80, "num_layers": 4, "num_heads": 6, "num_kv_heads": 2}
    model = Decoder(ModelConfig.model_validate({"vocab_size": 97, **shape, **settings}))
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape) + (parameter.ndim == 1 and not model.config.norm_offset))
    return model.requires_grad_(False)


def random_tokens(batch: int) -> torch.Tensor:
    return torch.randint(0, 97, (batch, LENGTH), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("portions", [(1,) * LENGTH, (20,) + (1,) * 12, (7, 5, 1, 1, 18)])
def test_generation_by_cache_equals_the_whole_forward(variant: str, portions: Sequence[int]) -> None:
    model, tokens = build(**VARIANTS[variant]), random_tokens(2)
    cache = KeyValueCache(model.config.num_layers, LENGTH)
    pieces = [model(piece, cache) for piece in tokens.split(portions, 1)]
    torch.testing.assert_close(torch.cat(pieces, 1), model(tokens), atol=2e-5, rtol=1e-5)
    assert cache.num_bytes == 2 * LENGTH * cache_bytes_per_token(model.config, bytes_per_number=4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_row_of_documents_is_rows_of_one_document_each(variant: str) -> None:
    model, tokens, lengths = build(**VARIANTS[variant]), random_tokens(1), (13, 1, 18)
    positions = torch.cat([torch.arange(length, dtype=torch.int32) for length in lengths])[None]
    alone = [model(document) for document in tokens.split(lengths, 1)]
    torch.testing.assert_close(model(tokens, positions_BL=positions), torch.cat(alone, 1), atol=2e-5, rtol=1e-5)
    assert (model(tokens) - torch.cat(alone, 1))[:, 13:].abs().max() > 0.01


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_token_sees_what_follows(variant: str) -> None:
    model, tokens = build(**VARIANTS[variant]), random_tokens(1)
    changed = tokens.clone()
    changed[0, 20:] = (changed[0, 20:] + 1) % 97
    torch.testing.assert_close(model(changed)[:, :20], model(tokens)[:, :20], atol=2e-5, rtol=1e-5)
    assert (model(changed) - model(tokens))[:, 20:].abs().max() > 0.01


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_of_pieces_of_the_features_are_those_of_the_whole(variant: str) -> None:
    model, tokens = build(**VARIANTS[variant]), random_tokens(2)
    pieces = [model.logits(piece) for piece in model.features(tokens).split(5, 1)]
    torch.testing.assert_close(torch.cat(pieces, 1), model(tokens), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_train_alike_in_any_portions(
    variant: str, make_config: Callable[..., RunConfig], documents_apart: GlobalBatches
) -> None:
    curves = []
    for micro_batch_size in (8, 2):
        training = {"steps": 3, "micro_batch_size": micro_batch_size}
        with initialize(make_config(model=VARIANTS[variant], training=training), documents_apart) as engine:
            for batch in engine.batches():
                engine.backward(engine(batch))
                report = engine.step()
                curves += [] if report is None else [(report.loss, report.grad_norm)]
    whole, portions = torch.tensor(curves).chunk(2)
    torch.testing.assert_close(whole, portions, atol=2e-5, rtol=2e-5)


def reference_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, document: torch.Tensor, window: int, scale: float, cap: float
) -> torch.Tensor:
    """One query, one head, one key at a time, in fp64."""
    batch, heads, length, _ = q.shape
    y = torch.zeros(batch, heads, length, v.shape[-1], dtype=torch.float64)
    for b, h, i in torch.cartesian_prod(torch.arange(batch), torch.arange(heads), torch.arange(length)).tolist():
        kv_head = h // (heads // k.shape[1])
        keys = [j for j in range(i + 1) if document[b, j] == document[b, i] and i - j < window]
        scores = [float(q[b, h, i].double() @ k[b, kv_head, j].double()) * scale for j in keys]
        capped = cap * torch.tanh(torch.tensor(scores, dtype=torch.float64) / cap)
        weights = capped.exp() / capped.exp().sum()
        y[b, h, i] = sum(w * v[b, kv_head, j].double() for w, j in zip(weights, keys, strict=True))
    return y


@pytest.mark.parametrize("window", [3, LENGTH])
@pytest.mark.parametrize("cap", [1.5, None])
def test_attention_is_its_definition(window: int, cap: float | None) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 12, 8), torch.randn(2, 2, 12, 8), torch.randn(2, 2, 12, 8)
    positions = torch.stack((torch.arange(12), torch.cat((torch.arange(5), torch.arange(7))))).int()
    mask = attention_mask(12, CPU, window=window, document_BL=document_of(positions))
    expected = reference_attention(q, k, v, document_of(positions), window, 0.5, cap or 1e9)
    attended = attend(q, k, v, mask, scale=0.5, soft_cap=cap)
    torch.testing.assert_close(attended.double(), expected, atol=1e-6, rtol=1e-5)


# Without its compiler, as here, FlexAttention says that it is slow.
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("window", [None, 3, 150])
@pytest.mark.parametrize("cap", [1.5, None])
@pytest.mark.parametrize("lengths", [(300,), (130, 1, 169)])
def test_masks_of_blocks_say_the_same(window: int | None, cap: float | None, lengths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 300, 16), torch.randn(2, 2, 300, 16), torch.randn(2, 2, 300, 8)
    apart = torch.cat([torch.arange(length, dtype=torch.int32) for length in lengths])
    documents = document_of(torch.stack((torch.arange(300), apart))) if len(lengths) > 1 else None
    plain, blocks = (make(300, CPU, window=window, document_BL=documents) for make in (attention_mask, block_mask))
    expected, by_blocks = (attend(q, k, v, mask, scale=0.5, soft_cap=cap) for mask in (plain, blocks))
    torch.testing.assert_close(by_blocks, expected, atol=1e-6, rtol=1e-5)


def test_masks_are_made_where_they_are_needed_alone() -> None:
    assert attention_mask(8, CPU) is None
    assert attention_mask(8, CPU, window=8) is None
    assert attention_mask(1, CPU, start=7, window=8) is None
    assert attention_mask(2, CPU, start=1).tolist() == [[True, True, False], [True, True, True]]  # type: ignore[union-attr]
    assert attention_mask(1, CPU, start=4, window=2).tolist() == [[False, False, False, True, True]]  # type: ignore[union-attr]


def test_windows_reach_as_far_as_layers_carry_them() -> None:
    model, tokens = build(sliding_window=3, num_layers=2), random_tokens(1)
    changed = tokens.clone()
    changed[0, 0] = (changed[0, 0] + 1) % 97
    differs = (model(changed) - model(tokens)).abs().amax(-1)[0] > 1e-6
    assert differs.tolist() == [True] * 5 + [False] * (LENGTH - 5)
    assert [build(sliding_window=3, global_every=2).config.window_of(layer) for layer in range(4)] == [3, None, 3, None]


def test_soft_caps_bound_logits() -> None:
    plain, capped = build(init_std=1.0), build(init_std=1.0, logit_soft_cap=2.0)
    features = plain.features(random_tokens(1))
    torch.testing.assert_close(capped.logits(features), 2 * torch.tanh(plain.logits(features) / 2))
    assert plain.logits(features).abs().max() > 2 >= capped.logits(features).abs().max()


def test_squared_relu_is_its_formula() -> None:
    config = ModelConfig(hidden_size=16, intermediate_size=24, activation="relu2", mlp_bias=True)
    mlp, x = FeedForward(config), torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    inner = x @ mlp.up_proj.weight.T + mlp.up_proj.bias
    expected = torch.where(inner > 0, inner * inner, 0.0) @ mlp.down_proj.weight.T + mlp.down_proj.bias
    torch.testing.assert_close(mlp(x), expected)
    assert mlp.gate_proj is None


def test_learned_positions_end() -> None:
    model = build(**{**VARIANTS["gpt2"], "max_positions": LENGTH - 1})
    with pytest.raises(ConfigError, match=r"model\.max_positions: 31 learned positions for 32 tokens"):
        model(random_tokens(1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_heads": 7}, "num_heads: 7 must divide hidden_size 256"),
        ({"num_heads": 8, "num_kv_heads": 3}, "num_kv_heads: 3 must divide num_heads 8"),
        ({"head_dim": 5}, "head_dim: 5 is odd"),
        ({"position": "learned"}, "max_positions: learned positions need their number"),
        ({"global_every": 2}, "global_every: 2 without a sliding_window"),
        ({"attention": "mla"}, "mla: None with attention 'mla'"),
        ({"norm": "layernorm", "norm_offset": True}, "norm_offset: goes with norm = 'rmsnorm' alone"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ModelConfig.model_validate(settings)
