"""PATH arguments as groups of raw files: token files, each with what lies beside it and says more of it."""

from collections.abc import Sequence
from pathlib import Path

from tokenmill_core import storage
from tokenmill_core.errors import InputError
from tokenmill_core.inputs import RawFile, RawGroup, hash_group
from tokenmill_core.listing import ListedFile, has_magic, list_folder, list_glob
from tokenmill_core.progress import ProgressBar
from tokenmill_shards.importing.layouts import Layout


def find_token_files(arguments: Sequence[str], layout: Layout) -> list[RawGroup]:
    """A group of hashed files for each of `arguments`: a token file, a folder of them, or a glob; by name.

    Raises:
        InputError: an argument leads to no token file, or two of them to the same one or to groups of one name.
    """
    if not arguments:
        raise InputError("no PATH given: name token files, their folder, or a glob")
    groups = sorted((_group(argument, layout) for argument in arguments), key=lambda group: (group.name, group.root))
    _refuse_twice(
        [group.name for group in groups], "two inputs are called {}: import their common folder, or each alone"
    )
    _refuse_twice([file.url for group in groups for file in group.files], "given twice: {}; name each once")
    with ProgressBar("hashing inputs", sum(file.bytes for group in groups for file in group.files)) as bar:
        return [hash_group(group, bar.advance) for group in groups]


def _group(argument: str, layout: Layout) -> RawGroup:
    if not storage.is_local(argument):
        raise InputError(f"{argument}: token files are linked to, not copied, so they must be on a local disk")
    root, listed = _listed(argument)
    tokens = [file for file in listed if file.name.endswith(layout.suffix)]
    if not tokens:
        raise InputError(f"{argument!r} leads to no *{layout.suffix} file; check the path and --format")
    files = {file.name: RawFile(file.url, file.name, file.bytes) for file in tokens}
    for file in tokens:
        files |= {beside.name: beside for beside in _companions(file, layout)}
    is_file = storage.local_path(argument).is_file()
    name = tokens[0].name.removesuffix(layout.suffix) if is_file else Path(root).name
    return RawGroup(storage.storable(name) or "root", root, tuple(files[name] for name in sorted(files)))


def _companions(file: ListedFile, layout: Layout) -> list[RawFile]:
    folder, _, _ = file.name.rpartition("/")
    paths = [path for path in layout.companions(Path(file.url)) if path.exists()]
    names = [f"{folder}/{storage.storable(path.name)}".lstrip("/") for path in paths]
    return [RawFile(str(path), name, path.stat().st_size) for path, name in zip(paths, names, strict=True)]


def _listed(argument: str) -> tuple[str, list[ListedFile]]:
    """The folder that the files are below, and the files."""
    path = storage.local_path(argument)
    if path.is_dir():
        return str(path), list_folder(str(path))
    if path.is_file():
        return str(path.parent), [ListedFile(storage.storable(path.name), str(path), path.stat().st_size)]
    if has_magic(argument):
        return list_glob(argument)
    raise InputError(f"no such file or folder: {argument!r}")


def _refuse_twice(names: list[str], message: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(message.format(", ".join(twice)))
