"""Verification: every problem of a dataset, not only the first one."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tokenmill_core import storage
from tokenmill_core.errors import TokenmillError
from tokenmill_core.lineage import raw_url, read_raw_files
from tokenmill_core.manifest import MANIFEST_NAME, FileEntry, Kind, MixtureManifest
from tokenmill_core.manifest_io import LoadedManifest, check_hash, check_size, load_input, load_manifest
from tokenmill_core.progress import ProgressBar


def find_problems(loaded: LoadedManifest[Any], *, inputs: bool = False) -> list[str]:
    """Everything that is not as the manifest says; with `inputs`, of all it was made from too, raw files included.

    Manifests among the files (those of a run's checkpoints) and the tokens of a mixture are always verified with it.
    """
    seen: set[str] = set()
    return list(_problems(loaded, inputs, seen))


def _problems(loaded: LoadedManifest[Any], inputs: bool, seen: set[str]) -> Iterator[str]:
    if loaded.manifest.digest in seen:
        return
    seen.add(loaded.manifest.digest)
    with ProgressBar(f"verifying {loaded.manifest.name}", sum(e.bytes for e in loaded.manifest.files)) as bar:
        yield from filter(None, (_file_problem(loaded, entry, bar.advance) for entry in loaded.manifest.files))
    for entry in loaded.manifest.files:
        if entry.path.endswith("/" + MANIFEST_NAME):
            yield from _nested_problems(loaded, entry, seen)
    if inputs:
        yield from _input_problems(loaded, range(len(loaded.manifest.inputs)), True, seen)
    elif isinstance(loaded.manifest, MixtureManifest):
        # A mixture has no files of its own: it is as sound as the tokens it mixes.
        yield from _input_problems(loaded, [source.input for source in loaded.manifest.sources], False, seen)


def _file_problem(loaded: LoadedManifest[Any], entry: FileEntry, on_bytes: Callable[[int], None]) -> str | None:
    try:
        check_size(loaded, entry)
        check_hash(loaded, entry, on_bytes)
    except (TokenmillError, OSError) as error:
        return str(error)
    return None


def _nested_problems(loaded: LoadedManifest[Any], entry: FileEntry, seen: set[str]) -> Iterator[str]:
    try:
        nested = load_manifest(loaded.file_url(entry.path))
    except TokenmillError as error:
        yield str(error)
        return
    yield from _problems(nested, False, seen)


def _input_problems(loaded: LoadedManifest[Any], numbers: Iterable[int], inputs: bool, seen: set[str]) -> Iterator[str]:
    for index in numbers:
        try:
            if loaded.manifest.inputs[index].kind is Kind.RAW:
                yield from _raw_problems(loaded, index)
            else:
                yield from _problems(load_input(loaded, index), inputs, seen)
        except TokenmillError as error:
            yield str(error)


def _raw_problems(loaded: LoadedManifest[Any], index: int) -> Iterator[str]:
    root = loaded.input_url(index)
    for row in read_raw_files(loaded):
        if row["input"] != loaded.manifest.inputs[index].name:
            continue
        url = raw_url(root, row)
        if not storage.exists(url):
            yield f"{url}: missing, but {loaded.url} was made from it"
        elif storage.hash_file(url)[1] != row["sha256"]:
            yield f"{url}: the content changed since {loaded.url} was made from it"
