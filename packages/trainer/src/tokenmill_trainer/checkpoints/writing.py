"""A snapshot becomes a checkpoint: sharded, each rank writes its own part.

    Snapshot ─ torch.distributed.checkpoint ─▶ .step-N.tmp/ ─ read back ─ manifest ─ rename ─▶ step-N/ ─ retention

The rename is the moment a checkpoint exists, and only then may older ones go. Everything here runs on whichever thread
it is called from, and the ranks talk over the group of the `World` that is given.
"""

import errno
import os
import shutil
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save as to_safetensors
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from tokenmill_core.errors import TokenmillError
from tokenmill_core.manifest import CheckpointManifest, Counts, FileEntry, InputRef, StageRef
from tokenmill_core.manifest_io import input_ref, publish, ref_from
from tokenmill_trainer import __version__
from tokenmill_trainer.checkpoints.capture import Snapshot
from tokenmill_trainer.checkpoints.retention import prune
from tokenmill_trainer.checkpoints.store import checkpoint_name, discard
from tokenmill_trainer.checkpoints.vouched_files import TensorWriter, read_back
from tokenmill_trainer.config import recorded
from tokenmill_trainer.world import World

STAGE = StageRef(name="pretrain run", version=1)


class CheckpointError(TokenmillError, OSError):
    """A checkpoint could not be written: raised on every rank; earlier ones are as they were."""


def write(snapshot: Snapshot, folder: Path, world: World) -> Path:
    """Write `snapshot` as `folder/step-NNNNNNNN` and remove what retention lets go. Collective.

    Errors: `CheckpointError` on every rank, with the path and the room that is left, if any rank cannot write its part
    or reads something else back.
    """
    name = checkpoint_name(snapshot.progress.step)
    temporary, final = folder / f".{name}.tmp", folder / name
    try:
        world.on_main(partial(_make_room, temporary, _whole_bytes(snapshot)))
        writer = TensorWriter(temporary)
        save_sharded(snapshot.tensors, storage_writer=writer, process_group=world.group)
        entries = world.gather(world.on_each(partial(_finish_rank, snapshot, writer, temporary, world.rank)))
        files = sorted((entry for part in entries for entry in part), key=lambda entry: entry.path)
        world.on_main(lambda: _complete(_manifest(snapshot, files, final, world.size), temporary, final))
        world.on_main(partial(prune, folder, snapshot.config.checkpoint, snapshot.progress.step))
    except (CheckpointException, OSError) as error:
        shutil.rmtree(temporary, ignore_errors=True)  # half a checkpoint would only keep the disk full
        raise CheckpointError(_describe_failure(final, error)) from error
    return final


def random_state_name(rank: int) -> str:
    """Name of the file with the state of a rank's random generators."""
    return f"random-{rank:05d}.safetensors"


def _whole_bytes(snapshot: Snapshot) -> int:
    """Bytes of all tensors, over all ranks: a sharded tensor knows its whole size."""
    return sum(value.numel() * value.element_size() for part in snapshot.tensors.values() for value in part.values())


def _make_room(folder: Path, num_bytes: int) -> None:
    """An empty `folder` on a disk with room for so much, lest logs that lie there be cut off as well."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if shutil.disk_usage(folder).free < num_bytes:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: its tensors have {num_bytes} bytes")


def _finish_rank(snapshot: Snapshot, writer: TensorWriter, folder: Path, rank: int) -> list[FileEntry]:
    """What this rank has written, read back."""
    with writer.files.create_stream(folder / random_state_name(rank), "wb") as file:
        file.write(to_safetensors(snapshot.random_state))
    for entry in writer.files.entries:
        read_back(folder, entry)
    return writer.files.entries


def _complete(manifest: CheckpointManifest, temporary: Path, final: Path) -> None:
    publish(manifest, str(temporary))
    _sync(temporary)
    discard(final)
    temporary.replace(final)
    _sync(final.parent)


def _manifest(snapshot: Snapshot, files: list[FileEntry], final: Path, world_size: int) -> CheckpointManifest:
    progress = snapshot.progress
    return CheckpointManifest(
        name=final.name,
        stage=STAGE,
        inputs=_inputs(snapshot, str(final)),
        config=recorded(snapshot.config, own_model=snapshot.own_model),
        files=tuple(files),
        counts=Counts(tokens=progress.consumed_tokens),
        tools={"tokenmill-trainer": __version__, "torch": torch.__version__},
        step=progress.step,
        consumed_samples=progress.consumed_samples,
        consumed_tokens=progress.consumed_tokens,
        world_size=world_size,
        sources=snapshot.sources,
        skipped=progress.skipped,
    )


def _inputs(snapshot: Snapshot, folder: str) -> tuple[InputRef, ...]:
    """The data, and the model that the run started from where it did."""
    data = (input_ref(snapshot.mixture, folder),) if snapshot.mixture else ()
    return data if snapshot.initial_model is None else (*data, ref_from(folder, snapshot.initial_model))


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


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
