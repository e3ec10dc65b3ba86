"""Verification: every problem of a dataset, not only the first one."""

from collections.abc import Iterator
from typing import Any

from tokenmill_core import storage
from tokenmill_core.errors import TokenmillError
from tokenmill_core.lineage import read_raw_files
from tokenmill_core.manifest import MANIFEST_NAME, Kind
from tokenmill_core.manifest_io import LoadedManifest, check_hash, check_sizes, load_input, load_manifest
from tokenmill_core.progress import ProgressBar


def find_problems(loaded: LoadedManifest[Any], *, inputs: bool = False) -> list[str]:
    """Everything that is not as the manifest says; with `inputs`, of all it was made from too, raw files included."""
    seen: set[str] = set()
    return list(_problems(loaded, inputs, seen))


def _problems(loaded: LoadedManifest[Any], inputs: bool, seen: set[str]) -> Iterator[str]:
    if loaded.manifest.digest in seen:
        return
    seen.add(loaded.manifest.digest)
    with ProgressBar(f"verifying {loaded.manifest.name}", sum(e.bytes for e in loaded.manifest.files)) as bar:
        for entry in loaded.manifest.files:
            one_file = loaded.manifest.model_copy(update={"files": (entry,)})
            single = LoadedManifest(url=loaded.url, manifest=one_file)
            try:
                check_sizes(single)
                check_hash(single, entry, bar.advance)
                if entry.path.endswith("/" + MANIFEST_NAME):
                    yield from _problems(load_manifest(loaded.file_url(entry.path)), False, seen)
            except TokenmillError as error:
                yield str(error)
    if inputs:
        yield from _input_problems(loaded, seen)


def _input_problems(loaded: LoadedManifest[Any], seen: set[str]) -> Iterator[str]:
    for index, ref in enumerate(loaded.manifest.inputs):
        try:
            if ref.kind is Kind.RAW:
                yield from _raw_problems(loaded, index)
            else:
                yield from _problems(load_input(loaded, index), True, seen)
        except TokenmillError as error:
            yield str(error)


def _raw_problems(loaded: LoadedManifest[Any], index: int) -> Iterator[str]:
    root = loaded.input_url(index)
    for row in read_raw_files(loaded):
        if row["input"] != loaded.manifest.inputs[index].name:
            continue
        url = storage.join(root, row["path"])
        if not storage.exists(url):
            yield f"{url}: missing, but {loaded.url} was made from it"
        elif storage.hash_file(url)[1] != row["sha256"]:
            yield f"{url}: the content changed since {loaded.url} was made from it"
