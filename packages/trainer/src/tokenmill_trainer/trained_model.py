"""The model of a run as one process uses it: whole, in fp32, from the newest checkpoint that verifies."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from tokenmill_core.errors import InputError
from tokenmill_core.manifest import CheckpointManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_shards.open_samples import load_samples_manifest
from tokenmill_trainer.checkpoints.restoring import read_tensors
from tokenmill_trainer.checkpoints.store import require_verified
from tokenmill_trainer.model import Decoder, ModelConfig, build_on_meta
from tokenmill_trainer.run_folder import RunFolder
from tokenmill_trainer.world import start_world


@dataclass(frozen=True)
class TrainedModel:
    """A checkpoint's weights, with what is needed to use them."""

    model: Decoder
    """On the CPU, fp32."""
    tokenizer: Tokenizer
    tokenizer_settings: dict[str, Any]
    """Of its `tokenizer_config.json`; empty where it has none."""
    vocab_size: int
    """Every id of the tokenizer is below it; the model may have more rows."""
    end_of_document_id: int | None
    """The id that closed every document in training, or none."""
    sequence_length: int
    """Positions the model was trained on."""
    checkpoint: LoadedManifest[CheckpointManifest]
    averaged: bool = False
    """Whether these are the averaged weights (`ema.decay`) rather than the last."""


def load_trained(run: RunFolder, say: Callable[[str], None], *, average: bool = False) -> TrainedModel:
    """The newest verified state of `run`, or with `average` that of its averaged weights.

    `say` is told of newer ones that are broken. Errors: `InputError` where there is no run, checkpoint or tokenizer, or
    no average was kept; `VerificationError` where none can be trusted.
    """
    config = run.read_config()
    if not run.tokenizer_file.exists():
        raise InputError(f"{run.tokenizer_file}: missing; copy it from the tokenizer of the run's mixture")
    settings = json.loads(run.tokenizer_config_file.read_bytes()) if run.tokenizer_config_file.exists() else {}
    if average and config.ema.decay is None:
        raise InputError(f"{run.path}: keeps no average of the weights; train with --set ema.decay=0.999")
    mixture = load_samples_manifest(str(run.mixture_file))
    found = require_verified(run.checkpoints, say)
    model = build_on_meta(ModelConfig.model_validate(found.manifest.config["model"])).to_empty(device="cpu")
    with start_world():
        read_tensors(found, {"model": dict(model.state_dict())})
        if average:
            read_tensors(found, {"ema": {name: value.detach() for name, value in model.named_parameters()}})
    return TrainedModel(
        model=model.eval().requires_grad_(False),
        tokenizer=Tokenizer.from_file(str(run.tokenizer_file)),
        tokenizer_settings=settings,
        vocab_size=mixture.manifest.vocab_size,
        end_of_document_id=mixture.manifest.end_of_document_id,
        sequence_length=config.data.sequence_length,
        checkpoint=found,
        averaged=average,
    )
