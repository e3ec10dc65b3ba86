"""The folder where an unfinished build lies: OUT/.work/<fingerprint>, for one process at a time."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tokenmill_core import storage
from tokenmill_core.errors import StageError
from tokenmill_core.output import WORK_NAME, is_single_file
from tokenmill_core.stage import Work

_LOCK = "lock"
_DISCARDED = "discarded-"


@contextmanager
def work_folder(out: str, fingerprint: str) -> Iterator[Work]:
    """The work folder of this build, locked against a second one. It is removed when the build has succeeded.

    Errors: `StageError` where another process builds `out`.
    """
    if is_single_file(out) or not storage.is_local(out):
        # Nothing to resume, or nowhere to keep it: the pieces live as long as this process.
        with tempfile.TemporaryDirectory(prefix="tokenmill-") as folder:
            yield Work(Path(folder))
        _discard_remote(out)
        return
    base = _base(out)
    with _locked(base, out):
        yield Work(base / _key(fingerprint))
        _discard(base)


def clear_finished(out: str, fingerprint: str) -> None:
    """Remove what a build that was killed after publishing left; the work of other, unfinished builds is kept."""
    if is_single_file(out) or not storage.is_local(out) or not _base(out).is_dir():
        return
    base = _base(out)
    folders = {path.name for path in base.iterdir() if path.is_dir() and not path.name.startswith(_DISCARDED)}
    if folders and _key(fingerprint) not in folders:
        return
    with suppress(StageError), _locked(base, out):
        _discard(base)


def _base(out: str) -> Path:
    return storage.local_path(out) / WORK_NAME


def _key(fingerprint: str) -> str:
    return fingerprint[:16]


@contextmanager
def _locked(base: Path, out: str) -> Iterator[None]:
    busy = StageError(f"{out}: another process is building this; wait for it or stop it")
    base.mkdir(parents=True, exist_ok=True)
    try:
        lock = (base / _LOCK).open("w")
    except FileNotFoundError as error:
        raise busy from error  # it finished just now and took the folder away
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise busy from error
        if not _is_still_there(lock.fileno(), base / _LOCK):
            raise busy
        yield


def _is_still_there(descriptor: int, path: Path) -> bool:
    """Whether the locked file is still the one others will find, and not one that was removed meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _discard(base: Path) -> None:
    # Renamed first: killed half way, no report may outlive the files that it vouches for.
    for folder in [path for path in base.iterdir() if path.is_dir()]:
        shutil.rmtree(folder.rename(folder.with_name(_DISCARDED + folder.name)))
    for file in [path for path in base.iterdir() if path.name != _LOCK]:
        file.unlink()
    (base / _LOCK).unlink()
    with suppress(OSError):  # the next build may be here already
        base.rmdir()


def _discard_remote(out: str) -> None:
    if is_single_file(out):
        return
    fs, path = storage.filesystem(storage.join(out, WORK_NAME))
    if fs.exists(path):
        fs.rm(path, recursive=True)
