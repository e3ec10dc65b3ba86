"""Our decoder in the Hugging Face layout: the names, settings and files of `LlamaForCausalLM`."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from tokenmill_core.manifest import TOKENIZER_CONFIG_NAME
from tokenmill_tokenizer.files.export import tokenizer_config
from tokenmill_trainer.model import Decoder, ModelConfig

ARCHITECTURE = "LlamaForCausalLM"


def hf_name(name: str) -> str:
    """The Hugging Face name of our parameter `name`."""
    return name if name.startswith("lm_head.") else f"model.{name}"


def our_name(name: str) -> str:
    """Our name of the Hugging Face parameter `name`."""
    return name.removeprefix("model.")


def hf_state(model: Decoder) -> dict[str, Tensor]:
    """The weights under their Hugging Face names; a tied head is not listed, as `transformers` has it."""
    return {hf_name(name): parameter.detach().contiguous() for name, parameter in model.named_parameters()}


def hf_config(config: ModelConfig, max_positions: int, end_id: int | None) -> dict[str, Any]:
    """The content of `config.json`."""
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        "vocab_size": config.vocabulary,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "max_position_embeddings": max_positions,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "tie_word_embeddings": config.tied_embeddings,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "initializer_range": config.init_std,
        "bos_token_id": None,
        "eos_token_id": end_id,
        "pad_token_id": None,
        "dtype": "float32",
    }


def write_layout(
    folder: Path,
    model: Decoder,
    tokenizer: Tokenizer,
    tokenizer_settings: dict[str, Any],
    *,
    max_positions: int,
    end_id: int | None,
) -> None:
    """Write model and tokenizer so that `transformers` loads both from `folder`.

    `tokenizer_settings` are those of its `tokenizer_config.json`, or empty where it has none.
    """
    weights = folder / "model.safetensors"
    save_file(hf_state(model), weights, metadata={"format": "pt"})
    weights.chmod(0o644)  # safetensors leaves it to its owner alone, unlike every other file
    settings = tokenizer_settings or _plain_settings(tokenizer, end_id)
    roles = {
        "bos_token_id": _id_of(tokenizer, settings.get("bos_token")),
        "eos_token_id": end_id,
        "pad_token_id": _id_of(tokenizer, settings.get("pad_token")),
    }
    _write_json(folder / "config.json", {**hf_config(model.config, max_positions, end_id), **roles})
    _write_json(folder / "generation_config.json", roles)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(folder / TOKENIZER_CONFIG_NAME, {**settings, "model_max_length": max_positions})


def _id_of(tokenizer: Tokenizer, token: str | None) -> int | None:
    return None if token is None else tokenizer.token_to_id(token)


def _plain_settings(tokenizer: Tokenizer, end_id: int | None) -> dict[str, Any]:
    specials = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
    end = None if end_id is None else tokenizer.id_to_token(end_id)
    return dict(json.loads(tokenizer_config(specials, end_of_document=end)))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")
