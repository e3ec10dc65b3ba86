"""A run that starts from the weights of a model in place of random ones: `--init-from`.

    DIR/manifest.json ─ hash every file ─▶ config.json ─▶ [model]
                                           *.safetensors ─ rename ─▶ weights, each rank its part

Weights alone: moments, schedule and data begin as in any new run. The model stands among the inputs of the run and of
its checkpoints, so lineage leads through it.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from tokenmill_core import storage
from tokenmill_core.config import merge
from tokenmill_core.errors import ConfigError, InputError, VerificationError
from tokenmill_core.manifest import TOKENIZER_NAME, InputRef, ModelManifest
from tokenmill_core.manifest_io import LoadedManifest, input_ref, is_manifest, load_manifest, verify_files
from tokenmill_trainer.batches.tokenizer import read_tokenizer
from tokenmill_trainer.engine import Engine
from tokenmill_trainer.hf.architectures import differences
from tokenmill_trainer.hf.importing import load_hf
from tokenmill_trainer.model import ModelConfig
from tokenmill_trainer.model.init import fill


def open_model(path: str) -> LoadedManifest[ModelManifest]:
    """The manifest of the model in folder `path`: one that was exported, or imported.

    Errors: `InputError` where there is none, with the way to get one.
    """
    if not is_manifest(path):
        raise InputError(
            f"{path}: no model with a manifest; `pretrain import {path} --out DIR` makes one of a folder that "
            "transformers saved, `pretrain export RUN --out DIR` of a run"
        )
    loaded = load_manifest(path)
    if not isinstance(loaded.manifest, ModelManifest):
        raise InputError(
            f"{path}: a {loaded.manifest.kind}, not a model; `pretrain export RUN --out DIR` makes one of a run's "
            "newest checkpoint"
        )
    return LoadedManifest(url=loaded.url, manifest=loaded.manifest)


def with_model_settings(values: dict[str, Any], path: str) -> dict[str, Any]:
    """Settings `values` with those of the model in `path` where `[model]` leaves them open.

    A preset says all of them: what it says is compared when weights are read.
    """
    given = values.get("model", {})
    if isinstance(given, dict) and "preset" not in given:
        return {**values, "model": merge(open_model(path).manifest.config["model"], given)}
    return values


def start_from(engine: Engine, path: str) -> InputRef:
    """Put the weights of the model in `path` into an engine at its first step; what it is, for manifests. Collective.

    Errors: `VerificationError` where a file is not what its manifest says; `ConfigError` where it is another model than
    the engine's, or was made for another tokenizer.
    """
    loaded = engine.world.on_main(lambda: _checked(engine, path))
    _, state = engine.world.on_each(lambda: load_hf(storage.local_path(loaded.folder)))
    fill(engine.model, lambda name, _: state[name])
    if engine.average is not None:
        engine.average.restart()
    return input_ref(loaded, loaded.folder).model_copy(update={"path": loaded.url})


def _checked(engine: Engine, path: str) -> LoadedManifest[ModelManifest]:
    loaded = open_model(path)
    verify_files(loaded)
    theirs = ModelConfig.model_validate(loaded.manifest.config["model"])
    differing = differences(engine.config.model, theirs)
    if differing:
        raise ConfigError(
            f"{path}: another model than the settings ask for: "
            + ", ".join(f"model.{name} is {ours}, not {there}" for name, (ours, there) in differing.items())
            + "; leave [model] out to take its settings over"
        )
    if engine.mixture is not None:
        _check_tokenizer(loaded, read_tokenizer(engine.mixture))
    return loaded


def _check_tokenizer(loaded: LoadedManifest[ModelManifest], ours: bytes) -> None:
    """The model's ids mean what the data's do; a model without a tokenizer is taken at its word."""
    if all(entry.path != TOKENIZER_NAME for entry in loaded.manifest.files):
        return
    url = loaded.file_url(TOKENIZER_NAME)
    theirs = storage.read_bytes(url)
    if hashlib.sha256(ours).digest() != hashlib.sha256(theirs).digest() and _merges(ours) != _merges(theirs):
        raise VerificationError(
            f"{url}: not the tokenizer that the data was made with, so the model would read other tokens than it "
            "learned; tokenize with it: prep tokenize … --tokenizer " + str(Path(loaded.folder) / TOKENIZER_NAME)
        )


def _merges(tokenizer: bytes) -> tuple[Any, Any]:
    """What decides which id a text gets; files that differ in layout alone are the same in it."""
    model = json.loads(tokenizer)["model"]
    merges = [pair.split(" ") if isinstance(pair, str) else pair for pair in model.get("merges", [])]
    return model.get("vocab"), merges
