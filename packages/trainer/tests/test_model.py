"""Start weights, and muP's promise that the width does not change how fast a model learns."""

import math

import pytest
import torch
import torch.nn.functional as F

from tokenmill_trainer.model import Decoder, ModelConfig
from tokenmill_trainer.model.init import fill, initial_weight, initialize_weights

MATRIX = torch.Size((256, 256))
QUERY, OUTPUT = "layers.0.self_attn.q_proj.weight", "layers.0.self_attn.o_proj.weight"


def test_start_weights_follow_from_seed_and_name() -> None:
    config = ModelConfig(vocab_size=512, num_layers=8)
    query, output = (initial_weight(config, 0, name, MATRIX) for name in (QUERY, OUTPUT))
    assert query.std().item() == pytest.approx(0.02, rel=0.02)
    assert output.std().item() == pytest.approx(0.02 / 4, rel=0.02)
    assert torch.equal(query, initial_weight(config, 0, QUERY, MATRIX))
    assert not torch.equal(query, initial_weight(config, 1, QUERY, MATRIX))
    assert not torch.equal(query, initial_weight(config, 0, QUERY.replace("0", "1"), MATRIX))


def test_residual_outputs_start_alike_where_they_are_not_scaled() -> None:
    config = ModelConfig(vocab_size=512, num_layers=8, residual_scaling=False)
    assert initial_weight(config, 0, OUTPUT, MATRIX).std().item() == pytest.approx(0.02, rel=0.02)


def test_truncated_start_weights_end_at_three_standard_deviations() -> None:
    normal, truncated = (initial_weight(ModelConfig(init=init), 0, QUERY, MATRIX) for init in ("gpt2", "truncated"))
    assert truncated.abs().max() <= 0.06 < normal.abs().max()
    assert truncated.std().item() == pytest.approx(0.02, rel=0.03)


@pytest.mark.parametrize("offset", [False, True])
def test_norms_start_as_the_identity_and_biases_at_zero(offset: bool) -> None:
    norm = {"norm_offset": True} if offset else {"norm": "layernorm"}
    config = ModelConfig.model_validate({"vocab_size": 97, "num_layers": 1, "attention_bias": "all", **norm})
    model = Decoder(config)
    initialize_weights(model, seed=0)
    x = torch.randn(4, 256, generator=torch.Generator().manual_seed(0))
    if offset:
        torch.testing.assert_close(model.norm(x), F.rms_norm(x, (256,)), atol=1e-4, rtol=1e-4)
    else:
        torch.testing.assert_close(model.norm(x), F.layer_norm(x, (256,)))
    assert not any(value.any() for name, value in model.named_parameters() if name.endswith("bias"))


def test_a_model_is_filled_with_given_weights() -> None:
    model, other = (Decoder(ModelConfig(vocab_size=97, num_layers=1)) for _ in range(2))
    state = model.state_dict()
    fill(other, lambda name, shape: state[name])
    assert all(torch.equal(value, state[name]) for name, value in other.state_dict().items())


def mup_config(width: int, base: int | None) -> ModelConfig:
    return ModelConfig(
        vocab_size=64,
        hidden_size=width,
        intermediate_size=2 * width,
        num_layers=2,
        num_heads=4,
        init_std=0.1,
        residual_scaling=False,
        mup_base_width=base,
    )


def test_mup_scales_hidden_matrices_logits_and_attention() -> None:
    base, wide = mup_config(32, 32), mup_config(128, 32)
    wide_model = Decoder(wide)
    assert {wide_model.lr_scale(name) for name, value in wide_model.named_parameters() if value.ndim == 1} == {1.0}
    hidden = [name for name, value in wide_model.named_parameters() if name.startswith("layers.") and value.ndim == 2]
    assert len(hidden) == 14
    assert {wide_model.lr_scale(name) for name in hidden} == {1 / 4}
    assert {wide_model.lr_scale(name) for name in ("embed_tokens.weight", "lm_head.weight")} == {1.0}
    stds = [initial_weight(config, 0, QUERY, MATRIX).std().item() for config in (base, wide)]
    assert stds[1] == pytest.approx(stds[0] / 2, rel=0.01)
    features = torch.randn(3, 128, generator=torch.Generator().manual_seed(0))
    assert wide_model.lm_head is not None
    torch.testing.assert_close(wide_model.logits(features), wide_model.lm_head(features) / 4)
    assert (base.softmax_scale, wide.softmax_scale) == (1 / 8, 1 / 32)
    assert mup_config(32, None).softmax_scale == pytest.approx(1 / math.sqrt(8))


def coordinates(width: int, base: int | None) -> dict[str, float]:
    """How far five steps of Adam move the outputs of each part, root mean square."""
    model = Decoder(mup_config(width, base))
    initialize_weights(model, seed=0)
    groups = [{"params": [value], "lr": 0.01 * model.lr_scale(name)} for name, value in model.named_parameters()]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    tokens = torch.randint(0, 64, (8, 17), generator=torch.Generator().manual_seed(1))

    def outputs() -> dict[str, torch.Tensor]:
        parts = {"attention": model.layers[1].self_attn, "mlp": model.layers[1].mlp}
        seen: dict[str, torch.Tensor] = {}
        hooks = [
            part.register_forward_hook(lambda _, __, out, key=key: seen.update({key: out}))
            for key, part in parts.items()
        ]
        with torch.no_grad():
            seen["logits"] = model(tokens[:, :-1])
        for hook in hooks:
            hook.remove()
        return seen

    before = outputs()
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
    after = outputs()
    return {part: (after[part] - before[part]).square().mean().sqrt().item() for part in before}


def test_under_mup_outputs_move_as_far_at_any_width() -> None:
    narrow, wide = (coordinates(width, base=32) for width in (32, 512))
    plain_narrow, plain_wide = (coordinates(width, base=None) for width in (32, 512))
    moved = {part: wide[part] / narrow[part] for part in wide}
    moved_plain = {part: plain_wide[part] / plain_narrow[part] for part in wide}
    assert all(0.4 < ratio < 2.5 for ratio in moved.values()), moved
    assert all(ratio > 4 for ratio in moved_plain.values()), moved_plain
