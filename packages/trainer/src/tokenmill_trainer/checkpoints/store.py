"""The checkpoints of a run on disk: which there are, and which can be trusted.

RUN/checkpoints/step-00000100/manifest.json and the files it vouches for
RUN/checkpoints/.step-00000200.tmp/            being written, or left by a kill: counts for nothing
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from tokenmill_core.errors import InputError, ManifestError, VerificationError
from tokenmill_core.manifest import CheckpointManifest
from tokenmill_core.manifest_io import LoadedManifest, load_manifest, verify_files

NAME = re.compile(r"step-(\d{8,})")
INDEX_NAME = ".metadata"
"""The file that says which tensor lies where: torch's name for it."""


def checkpoint_name(step: int) -> str:
    """Name of the folder for the state after `step` steps."""
    return f"step-{step:08d}"


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoint folders, newest first, whole or not."""
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=step_of, reverse=True)


def verify_checkpoint(path: Path) -> LoadedManifest[CheckpointManifest]:
    """The checkpoint's manifest, every one of its files having been hashed.

    Errors: `ManifestError` where it has none, `VerificationError` where a file is not what it says, or where it does
    not list the index of the tensors: that is a pickle, which nothing opens unless a hash vouches for it.
    """
    loaded = load_manifest(str(path), CheckpointManifest)
    verify_files(loaded)
    if all(entry.path != INDEX_NAME for entry in loaded.manifest.files):
        raise VerificationError(f"{loaded.url}: does not list {INDEX_NAME}, so nothing vouches for it")
    return loaded


def newest_verified(folder: Path, say: Callable[[str], None]) -> LoadedManifest[CheckpointManifest] | None:
    """The newest checkpoint that verifies; `say` is told of each newer one that does not. None where there is none yet.

    Errors: `VerificationError` where there are checkpoints but not one can be trusted.
    """
    paths = list_checkpoints(folder)
    for path in paths:
        try:
            return verify_checkpoint(path)
        except (ManifestError, VerificationError, OSError) as error:
            say(f"{path.name} is broken and is passed over: {error}")
    if paths:
        raise VerificationError(
            f"{folder}: none of its {len(paths)} checkpoints verifies; restore one, or start again with a new --out"
        )
    return None


def require_verified(folder: Path, say: Callable[[str], None]) -> LoadedManifest[CheckpointManifest]:
    """As `newest_verified`, where one must exist."""
    loaded = newest_verified(folder, say)
    if loaded is None:
        raise InputError(f"{folder}: no checkpoint yet; let `pretrain run` reach its first one")
    return loaded


def discard(path: Path) -> None:
    """Remove a checkpoint so that a kill half-way leaves nothing that looks whole.

    Files that cannot be removed, such as those that somebody reads from a file server, are left for another time: they
    are no reason to end a run.
    """
    if path.exists():
        leaving = path.with_name(f".{path.name}.old")
        shutil.rmtree(leaving, ignore_errors=True)
        path.replace(leaving)
        shutil.rmtree(leaving, ignore_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what a kill left behind, as far as it can be: half-written and half-removed checkpoints."""
    for path in folder.glob(".step-*") if folder.is_dir() else []:
        shutil.rmtree(path, ignore_errors=True)


def step_of(path: Path) -> int:
    """The step in the name of a checkpoint's folder."""
    match = NAME.fullmatch(path.name)
    assert match, path
    return int(match[1])
