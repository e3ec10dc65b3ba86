"""Saving and restoring the whole state of a run, sharded: each rank writes and reads its own part.

    engine ─ torch.distributed.checkpoint ─▶ .step-N.tmp/ ─ hash, manifest, fsync ─ rename ─▶ step-N/

The rename is the moment a checkpoint exists. Its `.metadata` is a pickle, so a checkpoint is handed to `restore` only
after every file was hashed against the manifest (`store.verify_checkpoint`).
"""

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded
from torch.distributed.tensor import DTensor

from tokenmill_core import storage
from tokenmill_core.errors import TokenmillError, VerificationError
from tokenmill_core.manifest import CheckpointManifest, Counts, FileEntry, StageRef
from tokenmill_core.manifest_io import LoadedManifest, input_ref, publish
from tokenmill_trainer import __version__
from tokenmill_trainer.checkpoints.store import checkpoint_name, discard, prune
from tokenmill_trainer.config import recorded
from tokenmill_trainer.engine import Engine, NonFiniteError
from tokenmill_trainer.layout.sharding import release_parameters
from tokenmill_trainer.report import Progress

STAGE = StageRef(name="pretrain run", version=1)
FLATTENED = StateDictOptions(flatten_optimizer_state_dict=True)
OPTIONAL_SECTIONS = {"ema", "loss_scale"}
"""What a run may begin to keep after its first checkpoint: where it is missing it starts afresh."""


class CheckpointError(TokenmillError, OSError):
    """A checkpoint could not be written: raised on every rank; earlier ones are as they were."""


def save(engine: Engine, folder: Path) -> Path:
    """Save the engine's state as `folder/step-NNNNNNNN` and remove what retention lets go. Collective.

    Errors: `CheckpointError` on every rank, with the path and the room that is left, if any rank cannot write its part.
    """
    name = checkpoint_name(engine.progress.step)
    temporary, final = folder / f".{name}.tmp", folder / name
    _refuse_poisoned(engine)
    try:
        engine.world.on_main(lambda: _make_empty(temporary))
        save_sharded(tensors(engine), storage_writer=FileSystemWriter(temporary))
        entries = engine.world.gather(engine.world.on_each(lambda: _finish_rank(engine, temporary)))
        files = sorted((entry for part in entries for entry in part), key=lambda entry: entry.path)
        engine.world.on_main(lambda: _complete(engine, files, temporary, final))
    except (CheckpointException, OSError) as error:
        shutil.rmtree(temporary, ignore_errors=True)  # half a checkpoint would only keep the disk full
        raise CheckpointError(_describe_failure(final, error)) from error
    return final


def _refuse_poisoned(engine: Engine) -> None:
    """Weights that are no numbers are never saved: every checkpoint is one that a run can go on from."""
    local = [p.to_local() if isinstance(p, DTensor) else p for p in engine.model.parameters()]
    if engine.world.any(not all(bool(weight.isfinite().all()) for weight in local)):
        raise NonFiniteError(
            f"step {engine.progress.step}: the weights hold NaN or infinity and are not saved; go on from the last "
            "checkpoint with --resume and a lower optimizer.lr (--allow-change schedule)"
        )


def restore(engine: Engine, loaded: LoadedManifest[CheckpointManifest]) -> None:
    """Put the engine into the state of a verified checkpoint, from any number of ranks and any ZeRO stage. Collective.

    Errors: `VerificationError` where the checkpoint's tensors are not those of this model.
    """
    path = storage.local_path(loaded.folder)
    state = tensors(engine)
    held = _sections(path)
    for section in OPTIONAL_SECTIONS & state.keys() - held:
        state.pop(section)
    read_tensors(path, state)
    optimizer_state = get_optimizer_state_dict(engine.model, engine.optimizer, options=FLATTENED)
    optimizer_state.update(state["optimizer"])
    set_optimizer_state_dict(engine.model, engine.optimizer, optimizer_state, options=FLATTENED)
    if engine.loss_scale is not None and "loss_scale" in held:
        engine.loss_scale.restore(state["loss_scale"]["state"])
    if engine.average is not None and "ema" not in held:
        engine.average.restart()
    if loaded.manifest.world_size == engine.world.size:
        _set_random_state(path / _random_state_name(engine.world.rank), engine.world.device)
    manifest = loaded.manifest
    engine.progress = Progress(manifest.step, manifest.consumed_samples, manifest.consumed_tokens)


def tensors(engine: Engine) -> dict[str, dict[str, Any]]:
    """Weights, moments and average by name, as they lie on this rank. Settings of the optimizer are not state."""
    release_parameters(engine.model)
    optimizer = get_optimizer_state_dict(engine.model, engine.optimizer, options=FLATTENED)
    sections: dict[str, dict[str, Any]] = {
        "model": get_model_state_dict(engine.model),
        "optimizer": {name: value for name, value in optimizer.items() if isinstance(value, Tensor)},
    }
    if engine.average is not None:
        sections["ema"] = dict(engine.average.tensors)
    if engine.loss_scale is not None:
        sections["loss_scale"] = {"state": engine.loss_scale.state()}
    return sections


def read_tensors(path: Path, state: dict[str, dict[str, Any]]) -> None:
    """Fill the tensors of `state` from the checkpoint at `path`, whose files must have been verified.

    The sections of `state` ("model", "optimizer", "ema") must hold exactly what the checkpoint holds under those names.
    """
    reader = FileSystemReader(path)
    held = {name for name in reader.read_metadata().state_dict_metadata if name.split(".", 1)[0] in state}
    wanted = {f"{section}.{name}" for section, values in state.items() for name in values}
    if held != wanted:
        missing, extra = sorted(wanted - held), sorted(held - wanted)
        raise VerificationError(
            f"{path}: not the tensors of this model: missing {missing[:3]}, unexpected {extra[:3]} "
            f"({len(missing)} and {len(extra)} in all); use the settings the checkpoint was made with"
        )
    load_sharded(state, storage_reader=reader)


def _sections(path: Path) -> set[str]:
    return {name.split(".", 1)[0] for name in FileSystemReader(path).read_metadata().state_dict_metadata}


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _finish_rank(engine: Engine, folder: Path) -> list[FileEntry]:
    rank = engine.world.rank
    random_state = folder / _random_state_name(rank)
    save_file(_random_state(engine.world.device), random_state)
    random_state.chmod(0o644)  # safetensors leaves it to its owner alone, unlike every other file
    _sync(random_state)
    paths = [*folder.glob(f"__{rank}_*"), random_state]
    if engine.world.is_main:
        paths.append(folder / ".metadata")
    return [_entry(path) for path in paths]


def _entry(path: Path) -> FileEntry:
    num_bytes, sha256 = storage.hash_file(str(path))
    return FileEntry(path=path.name, bytes=num_bytes, sha256=sha256)


def _complete(engine: Engine, files: list[FileEntry], temporary: Path, final: Path) -> None:
    publish(_manifest(engine, files, final), str(temporary))
    _sync(temporary)
    discard(final)
    temporary.replace(final)
    _sync(final.parent)
    prune(final.parent, engine.config.checkpoint.keep_last, engine.progress.step)


def _manifest(engine: Engine, files: list[FileEntry], final: Path) -> CheckpointManifest:
    progress = engine.progress
    return CheckpointManifest(
        name=final.name,
        stage=STAGE,
        inputs=(input_ref(engine.mixture, str(final)),) if engine.mixture else (),
        config=recorded(engine.config),
        files=tuple(files),
        counts=Counts(tokens=progress.consumed_tokens),
        tools={"tokenmill-trainer": __version__, "torch": torch.__version__},
        step=progress.step,
        consumed_samples=progress.consumed_samples,
        consumed_tokens=progress.consumed_tokens,
        world_size=engine.world.size,
        sources=engine.reader.use(progress.consumed_samples) if engine.reader else (),
    )


def _describe_failure(final: Path, error: BaseException) -> str:
    reasons = error.failures.values() if isinstance(error, CheckpointException) else [error]
    # torch pairs each failure with its stack, which is of no use to a person.
    causes = [failure[0] if isinstance(failure, tuple) else failure for failure in reasons]
    reason = "; ".join(dict.fromkeys(str(cause) for cause in causes))
    free = shutil.disk_usage(final.parent if final.parent.exists() else Path.cwd()).free
    return (
        f"{final}: could not be saved: {reason} ({free} bytes are free there); earlier checkpoints are as they were: "
        "make room and go on with --resume"
    )


def _random_state_name(rank: int) -> str:
    return f"random-{rank:05d}.safetensors"


def _random_state(device: torch.device) -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    return {**state, "cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else state


def _set_random_state(path: Path, device: torch.device) -> None:
    state = load_file(path)
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
