"""The model that is evaluated: that of a run's newest checkpoint, or one that was exported.

RUN  ─ newest verified checkpoint ─┐
MODEL ─ manifest, verified files ──┴─▶ EvaluatedModel, and the manifest it is known by
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from tokenmill_core import storage
from tokenmill_core.errors import InputError
from tokenmill_core.manifest import TOKENIZER_CONFIG_NAME, TOKENIZER_NAME, ModelManifest
from tokenmill_core.manifest_io import LoadedManifest, is_manifest, load_manifest, verify_files
from tokenmill_trainer.hf.importing import load_hf
from tokenmill_trainer.hf.writing import CONFIG_NAME
from tokenmill_trainer.model import Decoder
from tokenmill_trainer.run_folder import RunFolder
from tokenmill_trainer.trained_model import load_trained


@dataclass(frozen=True)
class EvaluatedModel:
    """A model with what a task's texts are read with."""

    model: Decoder
    """On the device it runs on; fp32, but as it is laid out where it is still trained."""
    tokenizer: Tokenizer
    vocab_size: int
    """Ids from it on are padding, and are never generated."""
    window: int
    """Most positions that it reads at once: those it was trained on."""
    end_id: int | None
    """What closed documents in training."""
    prefix_id: int | None
    """What stands before a text that has nothing before it: the tokenizer's begin of text, else `end_id`."""
    loaded: LoadedManifest[Any]
    """The checkpoint's or model's manifest, or that of the data it is still trained on."""


def load_evaluated(path: Path, say: Callable[[str], None], *, average: bool = False) -> EvaluatedModel:
    """The model of run or exported model `path`; `average` as for `load_trained`.

    Errors: `InputError` where it is neither; those of `load_trained` and `load_hf`; `VerificationError` where files are
    not what the manifest says.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if is_manifest(str(path)) and isinstance(load_manifest(str(path)).manifest, ModelManifest):
        if average:
            raise InputError(f"{path}: an exported model has one set of weights; leave out --ema")
        return _exported(path, device)
    run = RunFolder(path)
    if not run.has_run:
        raise InputError(
            f"{path}: neither a run nor a model that `pretrain export` wrote; `pretrain import` takes in one that "
            "transformers saved"
        )
    trained = load_trained(run, say, average=average)
    return EvaluatedModel(
        model=trained.model.to(device),
        tokenizer=trained.tokenizer,
        vocab_size=trained.vocab_size,
        window=trained.sequence_length,
        end_id=trained.end_of_document_id,
        prefix_id=_id_of(trained.tokenizer, trained.tokenizer_settings.get("bos_token"), trained.end_of_document_id),
        loaded=trained.checkpoint,
    )


def _exported(path: Path, device: torch.device) -> EvaluatedModel:
    loaded = load_manifest(str(path), ModelManifest)
    verify_files(loaded)
    folder = storage.local_path(loaded.folder)
    config, state = load_hf(folder)
    model = Decoder(config)
    model.load_state_dict(state)
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_NAME))
    settings, tokens = (json.loads((folder / name).read_bytes()) for name in (TOKENIZER_CONFIG_NAME, CONFIG_NAME))
    end_id = tokens.get("eos_token_id")
    return EvaluatedModel(
        model=model.to(device).eval().requires_grad_(False),
        tokenizer=tokenizer,
        vocab_size=tokenizer.get_vocab_size(),
        window=settings["model_max_length"],
        end_id=end_id,
        prefix_id=_id_of(tokenizer, settings.get("bos_token"), end_id),
        loaded=loaded,
    )


def prefix_id(tokenizer: Tokenizer, settings: bytes | None, otherwise: int | None) -> int | None:
    """What stands before a text that has nothing before it; `settings`: a `tokenizer_config.json`, if there is one."""
    return _id_of(tokenizer, None if settings is None else json.loads(settings).get("bos_token"), otherwise)


def _id_of(tokenizer: Tokenizer, token: str | None, otherwise: int | None) -> int | None:
    found = None if token is None else tokenizer.token_to_id(token)
    return otherwise if found is None else found
