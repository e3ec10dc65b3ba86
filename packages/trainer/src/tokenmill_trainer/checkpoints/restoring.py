"""Back into the state of a checkpoint, from any number of ranks and any ZeRO stage: each rank reads its own part.

    verified checkpoint ─ torch.distributed.checkpoint ─▶ weights, moments, average, loss scale, random state, progress

The index of the tensors is a pickle, so only a checkpoint whose files were all hashed may come here
(`store.verify_checkpoint`).
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded

from tokenmill_core import storage
from tokenmill_core.errors import VerificationError
from tokenmill_core.manifest import CheckpointManifest, InputRef, Kind
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_trainer.checkpoints.capture import FLATTENED, Sections, tensors
from tokenmill_trainer.checkpoints.writing import random_state_name
from tokenmill_trainer.engine import Engine
from tokenmill_trainer.report import Progress

OPTIONAL_SECTIONS = {"ema", "loss_scale", "guard"}
"""What a run may begin to keep after its first checkpoint: where it is missing it starts afresh."""


def restore(engine: Engine, loaded: LoadedManifest[CheckpointManifest]) -> None:
    """Put the engine into the state of a verified checkpoint. Collective.

    Errors: `VerificationError` where the checkpoint's tensors are not those of this model.
    """
    path = storage.local_path(loaded.folder)
    state = tensors(engine)
    held = {_section(name) for name in _index(path).state_dict_metadata}
    for section in OPTIONAL_SECTIONS & state.keys() - held:
        state.pop(section)
    read_tensors(loaded, state)
    optimizer_state = get_optimizer_state_dict(engine.model, engine.optimizer, options=FLATTENED)
    optimizer_state.update(state["optimizer"])
    set_optimizer_state_dict(engine.model, engine.optimizer, optimizer_state, options=FLATTENED)
    if engine.loss_scale is not None and "loss_scale" in held:
        engine.loss_scale.restore(state["loss_scale"]["state"])
    if "guard" in held:
        engine.judge.restore(state["guard"]["state"])
    if engine.average is not None and "ema" not in held:
        engine.average.restart()
    if loaded.manifest.world_size == engine.world.size:
        _set_random_state(path / random_state_name(engine.world.rank), engine.world.device)
    manifest = loaded.manifest
    engine.initial_model = _initial_model(loaded)
    engine.move_to(Progress(manifest.step, manifest.consumed_samples, manifest.consumed_tokens, manifest.skipped))


def _initial_model(loaded: LoadedManifest[CheckpointManifest]) -> InputRef | None:
    for number, ref in enumerate(loaded.manifest.inputs):
        if ref.kind == Kind.MODEL:
            return ref.model_copy(update={"path": loaded.input_url(number)})
    return None


def read_tensors(loaded: LoadedManifest[CheckpointManifest], state: Sections) -> None:
    """Fill the tensors of `state` from a verified checkpoint.

    The sections of `state` ("model", "optimizer", "ema") must hold exactly what the checkpoint holds under those names.
    Errors: `VerificationError` naming what is missing, too much or of another shape.
    """
    path = storage.local_path(loaded.folder)
    index = _index(path)
    _check_vouched(index, loaded)
    held = {name: value for name, value in index.state_dict_metadata.items() if _section(name) in state}
    wanted = {f"{section}.{name}": value for section, values in state.items() for name, value in values.items()}
    if held.keys() != wanted.keys():
        missing, extra = sorted(wanted.keys() - held.keys()), sorted(held.keys() - wanted.keys())
        raise VerificationError(
            f"{path}: not the tensors of this model: missing {missing[:3]}, unexpected {extra[:3]} "
            f"({len(missing)} and {len(extra)} in all); use the settings the checkpoint was made with"
        )
    for name, value in wanted.items():
        _check_shape(path, name, value, held[name])
    load_sharded(dict(state), storage_reader=FileSystemReader(path))


def _check_shape(path: Path, name: str, value: Any, held: Any) -> None:
    assert isinstance(held, TensorStorageMetadata), held
    if value.shape != held.size:
        raise VerificationError(
            f"{path}: {name} has shape {list(held.size)} there, {list(value.shape)} here; use the settings the "
            "checkpoint was made with"
        )


def _check_vouched(index: Metadata, loaded: LoadedManifest[CheckpointManifest]) -> None:
    """The index leads to files of the manifest alone."""
    files = {place.relative_path for place in (index.storage_data or {}).values()}
    unknown = sorted(files - {entry.path for entry in loaded.manifest.files})
    if unknown:
        raise VerificationError(f"{loaded.url}: tensors lie in {unknown[:3]}, for which this manifest does not vouch")


def _index(path: Path) -> Metadata:
    return FileSystemReader(path).read_metadata()


def _section(name: str) -> str:
    return name.split(".", 1)[0]


def _set_random_state(path: Path, device: torch.device) -> None:
    state = load_file(path)
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
