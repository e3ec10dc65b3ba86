import pytest
import torch
from pydantic import ValidationError

from tokenmill_trainer.flops import flops_per_token
from tokenmill_trainer.hf_layout import hf_config, hf_state, our_name
from tokenmill_trainer.init import initial_weight, initialize_weights
from tokenmill_trainer.model import Decoder, ModelConfig, build_on_meta, num_parameters
from tokenmill_trainer.rotary import RotaryTable, rotate


@pytest.mark.parametrize(
    ("preset", "published"),
    [("llama-2-7b", 6_738_415_616), ("llama-3-8b", 8_030_261_248), ("llama-3.2-1b", 1_235_814_400)],
)
def test_presets_have_their_published_parameter_counts(preset: str, published: int) -> None:
    assert num_parameters(build_on_meta(ModelConfig.model_validate({"preset": preset}))) == published


def test_a_preset_gives_way_to_what_is_set_beside_it() -> None:
    config = ModelConfig.model_validate({"preset": "llama-3-8b", "num_layers": 2})
    assert (config.num_layers, config.hidden_size) == (2, 4096)
    with pytest.raises(ValidationError, match=r"no preset is called 'llama-9'; there are llama-2-7b"):
        ModelConfig.model_validate({"preset": "llama-9"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_heads": 7}, "num_heads: 7 must divide hidden_size 256"),
        ({"num_heads": 8, "num_kv_heads": 3}, "num_kv_heads: 3 must divide num_heads 8"),
        ({"head_dim": 5}, "head_dim: 5 is odd"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ModelConfig.model_validate(settings)


def tiny(tied: bool) -> ModelConfig:
    return ModelConfig(
        vocab_size=97,
        hidden_size=48,
        intermediate_size=80,
        num_layers=2,
        num_heads=6,
        num_kv_heads=2,
        rope_theta=5e5,
        tied_embeddings=tied,
        init_std=0.2,
    )


@pytest.mark.parametrize("tied", [False, True])
def test_logits_and_greedy_continuation_equal_transformers_both_ways(tied: bool) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = tiny(tied)
    ours = Decoder(config)
    initialize_weights(ours, seed=1)
    theirs = LlamaForCausalLM(LlamaConfig(**hf_config(config, 64, None))).eval()
    theirs.load_state_dict(hf_state(ours), strict=not tied)
    tokens = torch.randint(0, 97, (2, 32), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert (ours(tokens) - theirs(tokens).logits).abs().max() < 1e-4
        for _ in range(8):
            tokens = torch.cat((tokens, ours(tokens)[:, -1:].argmax(-1)), 1)
            assert torch.equal(tokens[:, -1], theirs(tokens[:, :-1]).logits[:, -1].argmax(-1))

    torch.manual_seed(3)
    fresh = LlamaForCausalLM(LlamaConfig(**hf_config(config, 64, None))).eval()
    state = {our_name(name): value for name, value in fresh.state_dict().items() if not (tied and "lm_head" in name)}
    ours.load_state_dict(state, strict=True)
    with torch.no_grad():
        assert (ours(tokens) - fresh(tokens).logits).abs().max() < 1e-4


@pytest.mark.parametrize("cast_first", [False, True])
def test_rotary_phase_stays_fp32_whenever_the_model_is_cast(cast_first: bool) -> None:
    model, positions = Decoder(tiny(False)), torch.tensor([255, 256, 257, 4095, 32767])
    device = torch.device("cpu")
    if cast_first:
        model.to(torch.bfloat16)
    model.rotary(0, 40_000, device)
    model.to(torch.bfloat16)
    cos, sin = model.rotary(0, 40_000, device)
    frequencies = 5e5 ** -(torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    phase = torch.outer(positions.double(), frequencies)
    assert cos.dtype == sin.dtype == torch.float32
    torch.testing.assert_close(cos[positions].double(), phase.cos(), atol=4e-3, rtol=0)
    torch.testing.assert_close(sin[positions].double(), phase.sin(), atol=4e-3, rtol=0)
    neighbours = torch.stack((cos[254:259, 0], sin[254:259, 0]), 1)
    assert torch.pdist(neighbours).min() > 0.1


def test_rotation_depends_on_relative_position_alone() -> None:
    cos, sin = RotaryTable(16, 1e4)(0, 300, torch.device("cpu"))
    q, k = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
    scores = [rotate(q, cos[i + 7], sin[i + 7]) @ rotate(k, cos[i], sin[i]) for i in (0, 100, 290)]
    torch.testing.assert_close(scores[0], scores[1], atol=1e-4, rtol=0)
    torch.testing.assert_close(scores[0], scores[2], atol=1e-4, rtol=0)


def test_start_weights_follow_from_seed_and_name() -> None:
    config = ModelConfig(vocab_size=512, num_layers=8)
    shape = torch.Size((256, 256))
    query = initial_weight(config, 0, "layers.0.self_attn.q_proj.weight", shape)
    output = initial_weight(config, 0, "layers.0.self_attn.o_proj.weight", shape)
    assert query.std().item() == pytest.approx(0.02, rel=0.02)
    assert output.std().item() == pytest.approx(0.02 / 4, rel=0.02)
    assert torch.equal(query, initial_weight(config, 0, "layers.0.self_attn.q_proj.weight", shape))
    assert not torch.equal(query, initial_weight(config, 1, "layers.0.self_attn.q_proj.weight", shape))
    assert not torch.equal(query, initial_weight(config, 0, "layers.1.self_attn.q_proj.weight", shape))


def test_flops_count_the_head_but_not_the_look_up() -> None:
    config = ModelConfig.model_validate({"preset": "llama-2-7b"})
    without_embedding = 6_738_415_616 - 32_000 * 4096
    attention = 6 * 2048 * 32 * (128 + 128) * 32
    assert flops_per_token(config, 4096) == 6 * without_embedding + attention
