"""Presets against what was published of them, without any memory for weights."""

import pytest
from pydantic import ValidationError

from tokenmill_trainer.model import ModelConfig, build_on_meta, num_parameters
from tokenmill_trainer.model.flops import flops_per_token, num_active_parameters
from tokenmill_trainer.model.kv_cache import cache_bytes_per_token
from tokenmill_trainer.model.presets import DENSE_PRESETS, PRESETS

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "olmo-2-7b": 7_298_617_344,
    "gemma-2-9b": 9_241_705_984,
}


def preset(name: str, **settings: object) -> ModelConfig:
    return ModelConfig.model_validate({"preset": name, **settings})


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_have_their_published_parameter_counts(name: str) -> None:
    assert num_parameters(build_on_meta(preset(name))) == PUBLISHED[name]
    assert num_active_parameters(preset(name)) == PUBLISHED[name]


def test_every_dense_preset_is_checked() -> None:
    assert PUBLISHED.keys() == DENSE_PRESETS.keys() - {"tiny"}
    assert DENSE_PRESETS.items() <= PRESETS.items()


@pytest.mark.parametrize(
    ("name", "published"),
    [("llama-3.1-405b", 516_096), ("llama-3-8b", 131_072), ("llama-2-7b", 524_288)],
)
def test_a_position_takes_its_published_bytes_of_cache(name: str, published: int) -> None:
    assert cache_bytes_per_token(preset(name)) == published


def test_a_preset_gives_way_to_what_is_set_beside_it() -> None:
    config = preset("llama-3-8b", num_layers=2)
    assert (config.num_layers, config.hidden_size) == (2, 4096)
    with pytest.raises(ValidationError, match=r"no preset is called 'llama-9'; there are gpt2"):
        preset("llama-9")


def test_flops_count_the_head_but_not_the_look_ups() -> None:
    without_embedding = PUBLISHED["llama-2-7b"] - 32_000 * 4096
    attention = 6 * 2048 * 32 * (128 + 128) * 32
    assert flops_per_token(preset("llama-2-7b"), 4096) == 6 * without_embedding + attention
    without_positions = PUBLISHED["gpt2"] - 1024 * 768
    assert flops_per_token(preset("gpt2"), 1024) == 6 * without_positions + 6 * 512 * 12 * (64 + 64) * 12


def test_flops_of_deepseek_v2_are_the_published_ones() -> None:
    mla = {"q_rank": 1536, "kv_rank": 512, "nope_head_dim": 128, "rope_head_dim": 64, "v_head_dim": 128}
    moe = {
        "num_experts": 160,
        "experts_per_token": 6,
        "num_shared_experts": 2,
        "expert_intermediate_size": 1536,
        "num_dense_layers": 1,
    }
    shape = {"num_layers": 60, "hidden_size": 5120, "num_heads": 128, "num_kv_heads": None, "vocab_size": 102_400}
    config = preset("deepseek-v2-lite", **shape, intermediate_size=12_288, mla=mla, moe=moe)
    assert num_parameters(build_on_meta(config)) == pytest.approx(236e9, rel=0.005)
    assert flops_per_token(config, 4096) == pytest.approx(155e9, rel=0.01)


def test_flops_of_a_tied_head_are_those_of_one_apart() -> None:
    tied, apart = (preset("llama-3.2-1b", tied_embeddings=choice) for choice in (True, False))
    assert flops_per_token(tied, 4096) == flops_per_token(apart, 4096)


def test_flops_of_a_window_are_those_of_the_positions_in_it() -> None:
    length, window = 8192, 4096
    attended = sum(min(position + 0.5, window) for position in range(length)) / length
    local, full = (flops_per_token(preset("mistral-7b", sliding_window=size), length) for size in (window, None))
    per_position = 6 * 32 * (128 + 128) * 32
    assert full - local == pytest.approx(per_position * (length / 2 - attended))
    alternating = flops_per_token(preset("mistral-7b", global_every=2), length)
    assert alternating == pytest.approx((local + full) / 2)


def test_a_setting_of_a_section_changes_that_one_alone():
    preset = ModelConfig(preset="mixtral-8x7b")
    changed = ModelConfig.model_validate({"preset": "mixtral-8x7b", "moe": {"aux_loss": 0.5}})
    assert preset.moe is not None
    assert changed.moe == preset.moe.model_copy(update={"aux_loss": 0.5})
