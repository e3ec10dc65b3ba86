import math

import pytest
import torch
from pydantic import ValidationError

from tokenmill_trainer.model import Decoder, ModelConfig
from tokenmill_trainer.model.rotary import Llama3Scaling, RotaryTable, YarnScaling, rotate

CPU = torch.device("cpu")


@pytest.mark.parametrize("cast_first", [False, True])
def test_the_phase_stays_fp32_whenever_the_model_is_cast(cast_first: bool) -> None:
    config = ModelConfig(vocab_size=97, hidden_size=48, num_layers=1, num_heads=6, rope_theta=5e5)
    model, positions = Decoder(config), torch.tensor([255, 256, 257, 4095, 32767])
    assert model.rotary is not None
    if cast_first:
        model.to(torch.bfloat16)
    model.rotary(0, 40_000, CPU)
    model.to(torch.bfloat16)
    cos, sin = model.rotary(0, 40_000, CPU)
    frequencies = 5e5 ** -(torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    phase = torch.outer(positions.double(), frequencies)
    assert cos.dtype == sin.dtype == torch.float32
    torch.testing.assert_close(cos[positions].double(), phase.cos(), atol=4e-3, rtol=0)
    torch.testing.assert_close(sin[positions].double(), phase.sin(), atol=4e-3, rtol=0)
    neighbours = torch.stack((cos[254:259, 0], sin[254:259, 0]), 1)
    assert torch.pdist(neighbours).min() > 0.1


def test_rotation_depends_on_relative_position_alone() -> None:
    cos, sin = RotaryTable(16, 1e4)(0, 300, CPU)
    q, k = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
    scores = [rotate(q, (cos[i + 7], sin[i + 7])) @ rotate(k, (cos[i], sin[i])) for i in (0, 100, 290)]
    torch.testing.assert_close(scores[0], scores[1], atol=1e-4, rtol=0)
    torch.testing.assert_close(scores[0], scores[2], atol=1e-4, rtol=0)


def test_a_partial_rotation_turns_the_start_of_a_head_alone() -> None:
    rope = RotaryTable(8, 1e4)(0, 5, CPU)
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(0))
    turned = rotate(x, rope)
    assert torch.equal(turned[:, :8], rotate(x[:, :8], rope))
    assert torch.equal(turned[:, 8:], x[:, 8:])
    assert not torch.equal(turned[1:, :8], x[1:, :8])
    config = ModelConfig(vocab_size=97, hidden_size=64, num_heads=2, rope_fraction=0.25)
    assert config.rotary_size == 8
    with pytest.raises(ValidationError, match=r"rope_fraction: 0\.1 of a head of 32 is 3 numbers"):
        ModelConfig(hidden_size=64, num_heads=2, rope_fraction=0.1)


def test_llama_3_1_frequencies_are_as_published() -> None:
    plain = RotaryTable(128, 5e5).frequencies(CPU)
    scaled = RotaryTable(128, 5e5, Llama3Scaling()).frequencies(CPU)
    assert torch.equal(scaled[:29], plain[:29])
    torch.testing.assert_close(scaled[35:], plain[35:] / 8, atol=0, rtol=1e-6)
    published = torch.tensor([0.00216657076, 0.00137189357, 1.78507813e-4])
    torch.testing.assert_close(scaled[[29, 30, 34]], published, atol=0, rtol=1e-6)


def test_yarn_frequencies_are_as_published() -> None:
    deepseek = YarnScaling(factor=40, original_positions=4096, mscale_all_dim=1.0)
    assert deepseek.correction_range(64, 1e4) == (10, 23)
    plain, scaled = RotaryTable(64, 1e4).frequencies(CPU), RotaryTable(64, 1e4, deepseek).frequencies(CPU)
    assert torch.equal(scaled[:11], plain[:11])
    torch.testing.assert_close(scaled[23:], plain[23:] / 40, atol=0, rtol=1e-6)
    ramp = 4 / 13
    torch.testing.assert_close(scaled[14], plain[14] / 40 * ramp + plain[14] * (1 - ramp), atol=0, rtol=1e-6)


def test_yarn_sharpens_attention_by_its_magnitude_once() -> None:
    magnitude = 0.1 * math.log(40) + 1
    assert magnitude == pytest.approx(1.36889, abs=1e-5)
    turned, whole = YarnScaling(factor=40), YarnScaling(factor=40, mscale_all_dim=1.0)
    assert (turned.table_factor, turned.softmax_factor) == (pytest.approx(magnitude), 1)
    assert (whole.table_factor, whole.softmax_factor) == (1, pytest.approx(magnitude**2))
    cos, _ = RotaryTable(16, 1e4, turned)(0, 1, CPU)
    torch.testing.assert_close(cos, torch.full((1, 8), magnitude))
    config = ModelConfig(num_heads=4, hidden_size=64, rope_scaling=whole)
    assert config.softmax_scale == pytest.approx(magnitude**2 / 4)
