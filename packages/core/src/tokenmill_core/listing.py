"""Files below a folder or matching a glob, local or behind any fsspec URL.

Hidden files count, version control and unfinished builds do not. Names are relative to the root, with `/` separators.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import orjson

from tokenmill_core.errors import InputError
from tokenmill_core.manifest import MANIFEST_NAME
from tokenmill_core.storage import filesystem, is_local, storable

SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn", ".work", "__pycache__"})
WORK_FOLDER = ".work"
_MAGIC = frozenset("*?[")

logger = logging.getLogger("tokenmill")


@dataclass(frozen=True)
class ListedFile:
    """A file found: `name` below the root that was listed, where it lies, and its size in bytes."""

    name: str
    url: str
    bytes: int


Parts = tuple[str, ...]
Enter = Callable[[Parts], bool]
"""Whether to walk into the folder with these parts below the root."""


def has_magic(argument: str) -> bool:
    """Whether `argument` can be a glob."""
    return not _MAGIC.isdisjoint(argument)


def list_folder(url: str) -> list[ListedFile]:
    """All files below the folder at `url`, in the order of their names.

    Raises:
        InputError: the folder is an unfinished build.
    """
    if is_local(url):
        root = filesystem(url)[1]
        return _sorted(_walk(root, lambda parts: True))
    fs, path = filesystem(url)
    return _sorted(_remote_files(url, path, fs.find(path, detail=True), path))


def list_glob(pattern: str) -> tuple[str, list[ListedFile]]:
    """The fixed folder before the first wildcard of `pattern`, and the files below it that match, in order.

    `*` and `?` stay within a name, `[…]` is a set, `**` spans folders; a matching folder stands for all files in it.
    On a local disk a leading part that exists as written is taken as written, brackets and all.

    Raises:
        InputError: the fixed folder is an unfinished build.
    """
    return _glob_local(filesystem(pattern)[1]) if is_local(pattern) else _glob_remote(pattern)


def _sorted(files: Iterator[ListedFile]) -> list[ListedFile]:
    return sorted(files, key=lambda file: file.name)


def _glob_local(pattern: str) -> tuple[str, list[ListedFile]]:
    root, wildcards = os.sep, tuple(part for part in pattern.split(os.sep) if part)
    while len(wildcards) > 1 and os.path.isdir(os.path.join(root, wildcards[0])):
        root, wildcards = os.path.join(root, wildcards[0]), wildcards[1:]
    files = _walk(root, lambda parts: _matches(parts, wildcards, partly=True))
    return root, _sorted(file for file in files if _matches(tuple(file.name.split("/")), wildcards))


def _matches(parts: Parts, wildcards: Parts, *, partly: bool = False) -> bool:
    """Whether the path or a folder it lies in matches; with `partly`, whether something below the path could."""
    if not wildcards:
        return True
    if not parts:
        return partly or set(wildcards) == {"**"}
    if wildcards[0] == "**":
        return _matches(parts, wildcards[1:], partly=partly) or _matches(parts[1:], wildcards, partly=partly)
    return fnmatchcase(parts[0], wildcards[0]) and _matches(parts[1:], wildcards[1:], partly=partly)


def _glob_remote(pattern: str) -> tuple[str, list[ListedFile]]:
    fs, path = filesystem(pattern)
    root = path[: min(path.index(character) for character in _MAGIC if character in path)].rpartition("/")[0]
    found: dict[str, Any] = {}
    for match, info in fs.glob(path, detail=True).items():
        found |= fs.find(match, detail=True) if info["type"] == "directory" else {match: info}
    return _remote_url(pattern, path, root), _sorted(_remote_files(pattern, path, found, root))


def _remote_files(url: str, path: str, found: dict[str, Any], root: str) -> Iterator[ListedFile]:
    names = {file: file.removeprefix(root).lstrip("/") for file, info in found.items() if info["type"] == "file"}
    if any(name.startswith(f"{WORK_FOLDER}/") for name in names.values()) and MANIFEST_NAME not in names.values():
        raise unfinished(url)
    for file, name in names.items():
        if name and SKIPPED_FOLDERS.isdisjoint(name.split("/")[:-1]):
            yield ListedFile(name=name, url=_remote_url(url, path, file), bytes=int(found[file].get("size") or 0))


def _remote_url(url: str, path: str, other: str) -> str:
    """The URL of path `other` on the file system where `url` means `path`, host and options kept."""
    base = url.rstrip("/")
    if base.endswith(path.rstrip("/")):
        return base.removesuffix(path.rstrip("/")) + other
    return str(filesystem(url)[0].unstrip_protocol(other))


def unfinished(folder: str) -> InputError:
    """The error for a folder whose build was cut short."""
    return InputError(
        f"{folder} is an unfinished build ({WORK_FOLDER} without {MANIFEST_NAME}): "
        "run the command that writes it again, then use it"
    )


def _walk(root: str, enter: Enter) -> Iterator[ListedFile]:
    """Files below local `root`. Each folder is walked once, under its own name rather than that of a link to it."""
    real_root = os.path.realpath(root)
    folders: deque[tuple[str, str]] = deque([(root, "")])
    links: deque[tuple[str, str]] = deque()
    seen: set[str] = set()
    while folders or links:
        folder, prefix = (folders or links).popleft()
        real = os.path.realpath(folder)
        if real in seen or (real != real_root and _is_within(real_root, real)):
            continue
        seen.add(real)
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
        if _is_other_dataset(folder, {entry.name for entry in entries}, is_root=not prefix):
            continue
        for entry in entries:
            name = prefix + entry.name
            if _leads_nowhere(entry):
                logger.warning("%s is a link that leads nowhere; it is left out", entry.path)
            elif entry.is_dir():
                if entry.name not in SKIPPED_FOLDERS and enter(tuple(name.split("/"))):
                    (links if entry.is_symlink() else folders).append((entry.path, f"{name}/"))
            elif entry.is_file():
                yield ListedFile(name=storable(name), url=entry.path, bytes=entry.stat().st_size)


def _leads_nowhere(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() and not os.path.exists(entry.path)


def _is_within(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder


def _is_other_dataset(folder: str, names: set[str], *, is_root: bool) -> bool:
    """Whether `folder`, met below the root, is a dataset of ours, built or half built. A half-built root is refused."""
    if WORK_FOLDER in names and MANIFEST_NAME not in names:
        if is_root:
            raise unfinished(folder)
        logger.warning("%s is an unfinished build; it is left out", folder)
        return True
    if is_root or MANIFEST_NAME not in names or not _is_our_manifest(os.path.join(folder, MANIFEST_NAME)):
        return False
    logger.warning("%s is a dataset with a manifest; it is left out: name it as an INPUT to use it", folder)
    return True


def _is_our_manifest(path: str) -> bool:
    """Other software has files of this name too."""
    try:
        with open(path, "rb") as file:
            content = orjson.loads(file.read())
    except (OSError, orjson.JSONDecodeError):
        return False
    return isinstance(content, dict) and {"kind", "schema_version", "digest"} <= content.keys()
