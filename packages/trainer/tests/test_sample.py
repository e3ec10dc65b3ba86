import pytest
import torch

from tokenmill_trainer.generation import SampleConfig, choose, generate_ids
from tokenmill_trainer.model import Decoder, ModelConfig
from tokenmill_trainer.model.init import initialize_weights


@pytest.fixture(scope="module")
def model() -> Decoder:
    model = Decoder(
        ModelConfig(
            vocab_size=61, hidden_size=48, intermediate_size=64, num_layers=2, num_heads=6, num_kv_heads=2, init_std=0.3
        )
    )
    initialize_weights(model, 0)
    return model.eval()


def test_cached_generation_equals_rereading_everything(model: Decoder) -> None:
    prompt = [5, 9, 60, 1]
    got = list(generate_ids(model, prompt, 64, SampleConfig(num_tokens=20, temperature=0)))
    seen = list(prompt)
    with torch.no_grad():
        for _ in range(20):
            seen.append(int(model(torch.tensor([seen]))[0, -1].argmax()))
    assert got == seen[4:]


@pytest.mark.parametrize(("prompt_length", "num_tokens"), [(3, 40), (16, 5), (50, 20)])
def test_a_full_window_goes_on_from_its_later_half(model: Decoder, prompt_length: int, num_tokens: int) -> None:
    ids = list(generate_ids(model, [i % 61 for i in range(prompt_length)], 16, SampleConfig(num_tokens=num_tokens)))
    assert len(ids) == num_tokens
    assert all(0 <= i < 61 for i in ids)


def test_the_same_seed_gives_the_same_text_and_another_one_another(model: Decoder) -> None:
    texts = [list(generate_ids(model, [1], 64, SampleConfig(num_tokens=30, seed=seed))) for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


def test_top_k_draws_from_the_likeliest_alone() -> None:
    logits, generator = torch.tensor([0.0, 3.0, 2.9, -1.0]), torch.Generator().manual_seed(0)
    drawn = {choose(logits, SampleConfig(top_k=2, temperature=5), generator) for _ in range(200)}
    assert drawn == {1, 2}
    assert choose(logits, SampleConfig(temperature=0), generator) == 1


def test_rows_beyond_the_vocabulary_are_never_drawn(model: Decoder) -> None:
    config = SampleConfig(num_tokens=100, temperature=20)
    assert max(generate_ids(model, [1], 64, config)) >= 40
    assert max(generate_ids(model, [1], 64, config, vocab_size=40)) < 40
