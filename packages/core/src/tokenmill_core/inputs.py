"""INPUT arguments as groups of raw files.

    path │ folder │ glob │ URL ─▶ group of files ─▶ duplicates read once ─▶ names made unique ─▶ hashed

Nothing here depends on the order of the arguments or of the files on disk.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from fsspec.implementations.local import LocalFileSystem

from tokenmill_core.errors import InputError
from tokenmill_core.listing import ListedFile, has_magic, list_folder, list_glob
from tokenmill_core.manifest import sha256_of_json
from tokenmill_core.readers.formats import FORMAT_OF_SUFFIX, Format, bare_name, format_of, is_of, split_name
from tokenmill_core.saved_datasets import without_bookkeeping
from tokenmill_core.storage import filesystem, hash_file, is_local, local_path, parent, storable

_HASHING_THREADS = 4
_SUFFIXES_SHOWN = 12
_ROWS = {Format.JSONL, Format.PARQUET, Format.ARROW, Format.CSV, Format.TSV, Format.WARC}
"""Formats in which a file holds many documents."""

logger = logging.getLogger("tokenmill")


@dataclass(frozen=True)
class RawFile:
    """A raw file: where it lies, its name below the group's root with `/` separators, its content's size and hash."""

    url: str
    name: str
    bytes: int
    sha256: str = ""
    """Hex digest, empty until `hash_group` has read the file."""
    modified_ns: int | None = None
    """When a local file was last written to, as of just before it was hashed."""


@dataclass(frozen=True)
class RawGroup:
    """The files of one INPUT argument, in the order of their names."""

    name: str
    root: str
    files: tuple[RawFile, ...]
    notes: dict[str, int] = field(default_factory=dict)
    """`duplicate_inputs`: files reached a second time; `skipped_suffix_.csv`: files whose suffix says no format;
    `skipped_bookkeeping_files`: files of saved datasets that hold no data."""

    @property
    def digest(self) -> str:
        """sha256 of the names, sizes and hashes of the files: the same wherever they lie."""
        return sha256_of_json(sorted([file.name, file.bytes, file.sha256] for file in self.files))


def expand_inputs(arguments: Sequence[str], *, format: Format | None = None) -> list[RawGroup]:
    """The groups that `arguments` name, in the order of their names, then of their files.

    An argument is a path or URL taken as written, whatever characters it has; failing that, a glob. With `format`, a
    file named or matched by a glob is read in it whatever its suffix, and of a folder the files whose suffix says so.

    Raises:
        InputError: one message for all arguments that lead nowhere or to nothing readable.
    """
    groups, problems = [], []
    for argument in arguments:
        try:
            groups.append(_expand(argument, format))
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError("\n".join(problems))
    return _with_unique_names(_without_duplicates(sorted(groups, key=_order)))


def hash_group(group: RawGroup, on_bytes: Callable[[int], None] | None = None) -> RawGroup:
    """`group` with the size and sha256 of every file as read now; `on_bytes` is called from several threads.

    Raises:
        InputError: a file cannot be read.
    """

    def hashed(file: RawFile) -> RawFile:
        try:
            modified_ns = modified(file.url)
            num_bytes, sha256 = hash_file(file.url, on_bytes)
        except OSError as error:
            raise InputError(f"cannot read {file.url}: {error}") from error
        return replace(file, bytes=num_bytes, sha256=sha256, modified_ns=modified_ns)

    # hashlib lets go of the GIL, so threads are enough.
    with ThreadPoolExecutor(min(_HASHING_THREADS, os.cpu_count() or 1)) as pool:
        return replace(group, files=tuple(pool.map(hashed, group.files)))


def modified(url: str) -> int | None:
    """When the file at `url` was last written to, in nanoseconds; none for what is not on a local disk."""
    return os.stat(local_path(url)).st_mtime_ns if is_local(url) else None


def _order(group: RawGroup) -> tuple[str, list[tuple[str, int]], str]:
    return group.name, [(file.name, file.bytes) for file in group.files], group.root


def _expand(argument: str, format: Format | None) -> RawGroup:
    if not argument.strip():
        raise InputError(f"{argument!r} is no INPUT: name a file, folder, glob or URL; the folder one is in is '.'")
    fs, path = filesystem(argument)
    # A plain absolute path means the same in every worker, whatever folder it runs in.
    url = path if isinstance(fs, LocalFileSystem) else argument
    try:
        if fs.isfile(path):
            return _single_file(url, fs.size(path) or 0, format)
        if fs.isdir(path):
            return _folder(url, list_folder(url), format)
        if has_magic(argument):
            return _glob(argument, url, format)
        if fs.exists(path):
            raise InputError(f"{argument!r} is neither a file nor a folder; write its content to a file first")
    except OSError as error:
        raise InputError(f"cannot read {argument!r}: {error}") from error
    raise InputError(f"no such file or folder: {argument!r}")


def _single_file(url: str, num_bytes: int, format: Format | None) -> RawGroup:
    name = url.rsplit("/", 1)[-1]
    if format is None and format_of(name) is None:
        raise InputError(f"{url}: its suffix says no format; give --format ({', '.join(Format)})")
    name = storable(name)
    return RawGroup(bare_name(name), parent(url), (RawFile(url, name, num_bytes),))


def _folder(url: str, files: list[ListedFile], format: Format | None) -> RawGroup:
    return _group(url, url, files, lambda file: is_of(file.name, format))


def _glob(argument: str, url: str, format: Format | None) -> RawGroup:
    root, files = list_glob(url)
    if not files:
        raise InputError(f"no file matches {argument!r}")
    return _group(argument, root, files, lambda file: bool(format or format_of(file.name)))


def _group(argument: str, root: str, found: list[ListedFile], wanted: Callable[[ListedFile], bool]) -> RawGroup:
    files = without_bookkeeping(found)
    readable = [file for file in files if wanted(file)]
    skipped = Counter(_suffix(file.name) for file in set(files) - set(readable))
    common = sorted(skipped.items(), key=lambda item: (-item[1], item[0]))
    seen = ", ".join(f"{_spoken(suffix)} ({count})" for suffix, count in common[:_SUFFIXES_SHOWN])
    seen += f" and {len(common) - _SUFFIXES_SHOWN} more" if len(common) > _SUFFIXES_SHOWN else ""
    if not readable:
        raise InputError(
            f"{argument!r} holds nothing that can be read; suffixes seen: {seen or 'none, it is empty'}. "
            f"Known are {' '.join(FORMAT_OF_SUFFIX)}; for others, name the files by a glob and give --format"
        )
    kinds = Counter(format_of(file.name) for file in readable)
    if len({kind in _ROWS for kind in kinds}) == 2:
        # A README beside the data is a document too, unless one says otherwise; most people mean otherwise.
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items(), key=str))
        logger.warning("%s: files of several formats are read (%s); choose one with --format", argument, counts)
    if skipped:
        logger.warning("%s: files left out by their suffix: %s", argument, seen)
    return RawGroup(
        name=storable(root.rstrip("/").rsplit("/", 1)[-1]) or "root",
        root=root,
        files=tuple(RawFile(file.url, file.name, file.bytes) for file in readable),
        notes={f"skipped_suffix_{suffix}": count for suffix, count in sorted(skipped.items())}
        | ({"skipped_bookkeeping_files": len(found) - len(files)} if len(found) > len(files) else {}),
    )


def _spoken(suffix: str) -> str:
    return "without one" if suffix == "none" else suffix


def _suffix(name: str) -> str:
    _, suffix, compression = split_name(name)
    return suffix + compression or "none"


def _without_duplicates(groups: list[RawGroup]) -> list[RawGroup]:
    """Each file in the first group that has it, under its own name rather than that of a link to it."""
    owner: dict[str, int] = {}
    kept: list[list[RawFile]] = [[] for _ in groups]
    duplicates: Counter[int] = Counter()
    for index, group in enumerate(groups):
        again = []
        for file in sorted(group.files, key=lambda file: (_identity(file.url) != file.url, file.name)):
            identity = _identity(file.url)
            if identity in owner:
                again.append(file.url)
                duplicates[owner[identity]] += 1
            else:
                owner[identity] = index
                kept[index].append(file)
        _warn_of_duplicates(again)
    unique = [_with_files(group, kept[index], duplicates[index]) for index, group in enumerate(groups) if kept[index]]
    return sorted(unique, key=_order)


def _warn_of_duplicates(urls: list[str]) -> None:
    if urls:
        more = f" and {len(urls) - 3} more" if len(urls) > 3 else ""
        logger.warning("given more than once, read once: %s%s", ", ".join(urls[:3]), more)


def _with_files(group: RawGroup, files: list[RawFile], duplicates: int) -> RawGroup:
    notes = group.notes | ({"duplicate_inputs": duplicates} if duplicates else {})
    return replace(group, files=tuple(sorted(files, key=lambda file: file.name)), notes=notes)


def _identity(url: str) -> str:
    return os.path.realpath(url) if is_local(url) else url


def _with_unique_names(groups: list[RawGroup]) -> list[RawGroup]:
    """A second group called `en` becomes `en-2`, unless there is one already, and so on."""
    taken = {group.name for group in groups}
    given: set[str] = set()
    named = []
    for group in groups:
        name, number = group.name, 1
        while name in given or (number > 1 and name in taken):
            number += 1
            name = f"{group.name}-{number}"
        given.add(name)
        named.append(replace(group, name=name))
    return named
