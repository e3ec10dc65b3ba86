"""A model's folder as `transformers` reads it: weights, settings and tokenizer."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers import Tokenizer

from tokenmill_core.errors import ConfigError
from tokenmill_core.manifest import TOKENIZER_CONFIG_NAME
from tokenmill_tokenizer.files.export import tokenizer_config
from tokenmill_trainer.hf.architectures import layout_for
from tokenmill_trainer.hf.folding import folded
from tokenmill_trainer.hf.layout import Layout, Settings, State
from tokenmill_trainer.model import Decoder, ModelConfig

WEIGHTS_NAME, CONFIG_NAME = "model.safetensors", "config.json"


def hf_model(model: Decoder) -> tuple[Layout, Settings, State]:
    """Architecture, `config.json` and weights of `model`; a tied head is not listed, as `transformers` has it.

    Errors: `ConfigError` where no architecture can hold it.
    """
    config, state = model.config, {name: value.detach() for name, value in model.state_dict().items()}
    layout, config, state = _fitting(config, state)
    weights = {name: value.contiguous() for name, value in layout.write_state(config, state).items()}
    settings = {
        "architectures": [layout.architecture],
        "model_type": layout.model_type,
        **layout.write_config(config),
        "dtype": "float32",
    }
    return layout, settings, weights


def _fitting(config: ModelConfig, state: State) -> tuple[Layout, ModelConfig, State]:
    try:
        return layout_for(config), config, state
    except ConfigError:
        plain, plain_state = folded(config, state)
        return layout_for(plain), plain, plain_state


def write_model(folder: Path, model: Decoder, *, max_positions: int) -> Layout:
    """Write weights and `config.json`; the architecture they are of. `max_positions`: those it was trained on."""
    layout, settings, weights = hf_model(model)
    path = folder / WEIGHTS_NAME
    save_file(weights, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors leaves it to its owner alone, unlike every other file
    rotary = {} if model.config.position == "learned" else {"max_position_embeddings": max_positions}
    _write_json(folder / CONFIG_NAME, {**settings, **rotary})
    return layout


def write_layout(
    folder: Path,
    model: Decoder,
    tokenizer: Tokenizer,
    tokenizer_settings: dict[str, Any],
    *,
    max_positions: int,
    end_id: int | None,
) -> Layout:
    """Write model and tokenizer so that `transformers` loads both from `folder`; the architecture it is.

    `tokenizer_settings` are those of its `tokenizer_config.json`, or empty where it has none.
    """
    layout = write_model(folder, model, max_positions=max_positions)
    settings = tokenizer_settings or _plain_settings(tokenizer, end_id)
    roles = {
        "bos_token_id": _id_of(tokenizer, settings.get("bos_token")),
        "eos_token_id": end_id,
        "pad_token_id": _id_of(tokenizer, settings.get("pad_token")),
    }
    config = json.loads((folder / CONFIG_NAME).read_text("utf-8"))
    _write_json(folder / CONFIG_NAME, {**config, **roles})
    _write_json(folder / "generation_config.json", roles)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(folder / TOKENIZER_CONFIG_NAME, {**settings, "model_max_length": max_positions})
    return layout


def _id_of(tokenizer: Tokenizer, token: str | None) -> int | None:
    return None if token is None else tokenizer.token_to_id(token)


def _plain_settings(tokenizer: Tokenizer, end_id: int | None) -> dict[str, Any]:
    specials = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
    end = None if end_id is None else tokenizer.id_to_token(end_id)
    return dict(json.loads(tokenizer_config(specials, end_of_document=end)))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")
