"""The output of a build: whose folder it is, and how finished files get into it.

    work folder ─▶ old manifest retired ─▶ files put in place ─▶ leftovers of older builds removed ─▶ (manifest, last)

A journal in `.work` names what a build put, or was about to put, beside it: whatever moment a build is killed at, the
next one knows which files are ours to remove.
"""

import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import orjson

from tokenmill_core import storage
from tokenmill_core.errors import InputError, TokenmillError
from tokenmill_core.manifest import MANIFEST_NAME
from tokenmill_core.manifest_io import looks_like_manifest
from tokenmill_core.stage import Stage

WORK_NAME = ".work"
_JOURNAL = "listed-"


def is_single_file(out: str) -> bool:
    """Whether `out` is a manifest that stands alone, without files beside it."""
    return out.endswith(".json")


def check_output(stage: Stage, out: str) -> None:
    """Refuse to build over something that is not ours, or over what the stage reads."""
    fs, path = storage.filesystem(out)
    for loaded in stage.inputs.manifests:
        if _place(out) in (_place(loaded.folder), _place(loaded.url)):
            raise InputError(f"--out {out}: this is an input of the build; name another place")
    for group in stage.inputs.raw:
        if any(file.url.startswith(_place(out) + "/") for file in group.files):
            raise InputError(f"--out {out}: a file that is read lies in it ({group.name}); name another place")
    if is_single_file(out):
        if stage.phases() and stage.writes_files:
            raise InputError(f"--out {out}: {stage.name} writes files beside its manifest; name a folder")
        _refuse_foreign_file(out)
        _refuse_other_stage(stage, out, out)
        return
    if not fs.exists(path):
        return
    if not fs.isdir(path):
        raise InputError(f"--out {out}: this is a file; name a folder")
    names = {os.path.basename(entry.rstrip("/")) for entry in fs.ls(path, detail=False)}
    if names and WORK_NAME not in names and not _holds_manifest(out, names):
        raise InputError(
            f"--out {out}: the folder holds other files ({', '.join(sorted(names)[:3])}, …); name a new one"
        )
    _refuse_other_stage(stage, out, storage.join(out, MANIFEST_NAME))


def _refuse_other_stage(stage: Stage, out: str, url: str) -> None:
    """A rebuild may replace what the same command wrote before; what another one wrote is somebody's work."""
    if not storage.exists(url):
        return
    try:
        written_by = orjson.loads(storage.read_bytes(url))["stage"]["name"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return  # damaged: the build says so and replaces it
    if written_by != stage.name:
        raise InputError(f"--out {out}: holds what {written_by!r} wrote; name another place, or remove it first")


def _place(folder: str) -> str:
    return str(storage.local_path(folder).resolve()) if storage.is_local(folder) else folder.rstrip("/")


def _holds_manifest(out: str, names: Iterable[str]) -> bool:
    return MANIFEST_NAME in names and looks_like_manifest(storage.read_bytes(storage.join(out, MANIFEST_NAME)))


def _refuse_foreign_file(out: str) -> None:
    if not storage.exists(out):
        return
    fs, path = storage.filesystem(out)
    if fs.isdir(path):
        raise InputError(f"--out {out}: this is a folder; name a .json file that is not there yet")
    if not looks_like_manifest(storage.read_bytes(out)):
        raise InputError(f"--out {out}: this file is no manifest of ours; name another, or remove it first")


def move_in(sources: dict[str, Path], out: str) -> None:
    """Put the finished files into `out`, where no manifest vouches for them yet, and clear what an older build left."""
    if is_single_file(out):
        return
    if storage.is_local(out):
        _link_in(sources, storage.local_path(out))
    else:
        _upload(sources, out)


def _link_in(sources: dict[str, Path], folder: Path) -> None:
    journals = folder / WORK_NAME
    journals.mkdir(parents=True, exist_ok=True)
    old = folder / MANIFEST_NAME
    if old.exists():
        # First of all: from here to the end of the build the folder is unfinished.
        old.replace(journals / _journal_name())
    storage.write_atomic(journals / _journal_name(), _journal_of(sources))
    for name, source in sources.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            target.unlink()
        try:
            # A link, not a move: if we are killed half way, the work folder is still whole.
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
    for name in _listed(path.read_bytes() for path in journals.glob(f"{_JOURNAL}*.json")) - sources.keys():
        # What leads out of the folder was never ours.
        with suppress(OSError, TokenmillError):
            Path(storage.inside(str(folder), name)).unlink()
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def _upload(sources: dict[str, Path], out: str) -> None:
    fs, path = storage.filesystem(out)
    root = path.rstrip("/")
    journals = f"{root}/{WORK_NAME}"
    fs.makedirs(journals, exist_ok=True)
    if fs.exists(f"{root}/{MANIFEST_NAME}"):
        fs.mv(f"{root}/{MANIFEST_NAME}", f"{journals}/{_journal_name()}")
    fs.pipe_file(f"{journals}/{_journal_name()}", _journal_of(sources))
    for name, source in sources.items():
        fs.put_file(str(source), f"{root}/{name}")
    for name in _listed(fs.cat_file(file) for file in fs.glob(f"{journals}/{_JOURNAL}*.json")) - sources.keys():
        if ".." not in name.split("/") and fs.exists(f"{root}/{name}"):
            fs.rm_file(f"{root}/{name}")


def _journal_name() -> str:
    return f"{_JOURNAL}{time.time_ns()}.json"


def _journal_of(names: Iterable[str]) -> bytes:
    """In the form of a manifest, as retired manifests are journals too."""
    return orjson.dumps({"files": [{"path": name} for name in names]})


def _listed(journals: Iterable[bytes]) -> set[str]:
    names: set[str] = set()
    for content in journals:
        with suppress(orjson.JSONDecodeError, AttributeError, KeyError, TypeError):  # a retired manifest can be damaged
            names |= {entry["path"] for entry in orjson.loads(content)["files"]}
    return names
