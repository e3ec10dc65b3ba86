import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from tokenmill_core.errors import ConfigError, InputError, VerificationError
from tokenmill_core.manifest import CheckpointManifest, StageRef
from tokenmill_core.manifest_io import publish
from tokenmill_trainer.hf import export
from tokenmill_trainer.hf.layout import Layout
from tokenmill_trainer.model import Decoder, ModelConfig
from tokenmill_trainer.model.init import initialize_weights
from tokenmill_trainer.trained_model import TrainedModel

GPT2 = {"norm": "layernorm", "activation": "gelu", "attention_bias": "all", "mlp_bias": True}
GEMMA2 = {
    "global_every": 2,
    "norm_placement": "sandwich",
    "norm_offset": True,
    "activation": "geglu",
    "embedding_scale": 32**0.5,
}


@pytest.fixture
def trained(tmp_path: Path) -> TrainedModel:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    config = ModelConfig(
        vocab_size=257, hidden_size=32, num_layers=1, num_heads=4, num_kv_heads=2, tied_embeddings=True
    )
    model = Decoder(config).requires_grad_(False)
    initialize_weights(model, 0)
    manifest = CheckpointManifest(
        name="step-00000001",
        stage=StageRef(name="pretrain run", version=1),
        config={},
        step=1,
        consumed_samples=1,
        consumed_tokens=1,
        world_size=1,
    )
    return TrainedModel(model, tokenizer, {}, 257, 256, 64, publish(manifest, str(tmp_path / "checkpoint")))


def test_a_tied_model_is_exported_with_its_end_of_document(trained: TrainedModel, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer

    loaded = export.export(trained, tmp_path / "model")
    assert loaded.manifest.parameters == sum(p.numel() for p in trained.model.parameters())
    assert AutoConfig.from_pretrained(tmp_path / "model").eos_token_id == 256
    assert AutoTokenizer.from_pretrained(tmp_path / "model").eos_token_id == 256
    assert {entry.path for entry in loaded.manifest.files} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


@pytest.mark.parametrize(
    ("settings", "architecture"),
    [
        ({"position": "learned", "max_positions": 64, **GPT2}, "GPT2LMHeadModel"),
        ({"attention_soft_cap": 5.0, "logit_soft_cap": 3.0, "sliding_window": 8, **GEMMA2}, "Gemma2ForCausalLM"),
    ],
)
def test_a_model_is_exported_as_what_it_is(
    trained: TrainedModel, tmp_path: Path, settings: dict[str, Any], architecture: str
) -> None:
    shape = {"vocab_size": 257, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "tied_embeddings": True}
    model = Decoder(ModelConfig.model_validate({**shape, **settings})).requires_grad_(False)
    initialize_weights(model, 0)
    loaded = export.export(dataclasses.replace(trained, model=model), tmp_path / "model")
    assert loaded.manifest.architecture == architecture


def test_what_transformers_does_not_have_publishes_nothing(trained: TrainedModel, tmp_path: Path) -> None:
    model = Decoder(ModelConfig(vocab_size=257, hidden_size=32, num_layers=1, num_heads=4, activation="relu2"))
    with pytest.raises(ConfigError, match=r"lacks model\.activation = relu2"):
        export.export(dataclasses.replace(trained, model=model), tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"]


def test_other_logits_publish_nothing(trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = export.write_layout

    def write_another_model(folder: Path, model: Decoder, *rest: object, **options: object) -> Layout:
        other = Decoder(model.config)
        other.load_state_dict(model.state_dict())
        with torch.no_grad():
            other.norm.weight[0] += 0.5
        return write(folder, other, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(export, "write_layout", write_another_model)
    with pytest.raises(VerificationError, match=r"logits differ from those of transformers by .* nothing is published"):
        export.export(trained, tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"]


def test_without_transformers_the_remedy_is_named(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"pip install 'tokenmill-trainer\[hf\]'"):
        export.export(trained, tmp_path / "model")


def test_a_second_export_keeps_the_first_and_refuses_what_is_another(trained: TrainedModel, tmp_path: Path) -> None:
    first = export.export(trained, tmp_path / "model")
    assert export.export(trained, tmp_path / "model") == first
    with (tmp_path / "model" / "model.safetensors").open("r+b") as weights:
        weights.seek(-1, 2)
        weights.write(b"\x55")
    with pytest.raises(VerificationError, match=r"model\.safetensors"):
        export.export(trained, tmp_path / "model")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep")
    with pytest.raises(InputError, match="holds something else"):
        export.export(trained, tmp_path / "notes")
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["mine.txt"]
