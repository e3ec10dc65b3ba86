"""Verification: every problem of a dataset, not only the first one.

    manifest ─▶ its files: there, of their size, with their sha256 ─▶ what they hold, by the check of its kind
        └▶ manifests among the files; the tokens of a mixture; with `inputs`, all it was made from

What the files of a kind must hold is known to the package that writes them. It offers a check by the entry point group
`tokenmill.checks`, named by the kind.
"""

import importlib.metadata
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tokenmill_core import storage
from tokenmill_core.errors import TokenmillError
from tokenmill_core.lineage import raw_url, read_raw_files
from tokenmill_core.manifest import MANIFEST_NAME, FileEntry, Kind
from tokenmill_core.manifest_io import LoadedManifest, check_hash, check_size, load_input, load_manifest
from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_core.progress import ProgressBar

_LOG = logging.getLogger("tokenmill")


@dataclass
class Checked:
    """What a verification has looked at."""

    files: int = 0
    bytes: int = 0
    documents: int = 0
    tokens: int = 0
    notes: list[str] = field(default_factory=list)
    """What was measured, or could not be checked."""


Check = Callable[[LoadedManifest[Any], Checked], Iterator[str]]
"""Gives each problem of what the files of a dataset hold, and adds to what was checked. The files are known to be those
that the manifest vouches for."""


def find_problems(loaded: LoadedManifest[Any], *, inputs: bool = False, checked: Checked | None = None) -> list[str]:
    """Everything that is not as the manifest says; with `inputs`, of all it was made from too, raw files included.

    Manifests among the files (those of a run's checkpoints) and the tokens of a mixture are always verified with it.
    What was looked at is added to `checked`.
    """
    return list(_Verification(checked or Checked()).problems(loaded, inputs))


class _Verification:
    """One walk through datasets, each looked at once."""

    def __init__(self, checked: Checked) -> None:
        self._checked = checked
        self._seen: set[str] = set()

    def problems(self, loaded: LoadedManifest[Any], inputs: bool) -> Iterator[str]:
        if loaded.manifest.digest in self._seen:
            return
        self._seen.add(loaded.manifest.digest)
        damaged = list(self._damaged_files(loaded))
        yield from damaged
        for entry in loaded.manifest.files:
            if entry.path.endswith("/" + MANIFEST_NAME):
                yield from self._nested_problems(loaded, entry)
        if inputs:
            yield from self._input_problems(loaded, range(len(loaded.manifest.inputs)), True)
        elif isinstance(loaded.manifest, MixtureManifest):
            # A mixture has no files of its own: it is as sound as the tokens it mixes.
            yield from self._input_problems(loaded, [source.input for source in loaded.manifest.sources], False)
        if not damaged:
            yield from self._content_problems(loaded)

    def _damaged_files(self, loaded: LoadedManifest[Any]) -> Iterator[str]:
        files = loaded.manifest.files
        with ProgressBar(f"verifying {loaded.manifest.name}", sum(entry.bytes for entry in files)) as bar:
            for entry in files:
                try:
                    check_size(loaded, entry)
                    check_hash(loaded, entry, bar.advance)
                except (TokenmillError, OSError) as error:
                    yield str(error)
                self._checked.files += 1
                self._checked.bytes += entry.bytes

    def _content_problems(self, loaded: LoadedManifest[Any]) -> Iterator[str]:
        for entry in importlib.metadata.entry_points(group="tokenmill.checks", name=str(loaded.manifest.kind)):
            try:
                check: Check = entry.load()
            except ImportError as error:
                yield f"{loaded.url}: its content cannot be checked: {error}; install what holds {entry.value} again"
                continue
            try:
                yield from check(loaded, self._checked)
            except Exception as error:  # whatever it is: a check that broke off has not found everything in order
                _LOG.debug("the check of %s broke off", loaded.url, exc_info=True)
                yield (
                    f"{loaded.url}: the check of its content broke off: {type(error).__name__}: {error}; build it "
                    "again, and report this if that does not help"
                )

    def _nested_problems(self, loaded: LoadedManifest[Any], entry: FileEntry) -> Iterator[str]:
        try:
            nested = load_manifest(loaded.file_url(entry.path))
        except TokenmillError as error:
            yield str(error)
            return
        yield from self.problems(nested, False)

    def _input_problems(self, loaded: LoadedManifest[Any], numbers: Iterable[int], inputs: bool) -> Iterator[str]:
        for index in numbers:
            try:
                if loaded.manifest.inputs[index].kind is Kind.RAW:
                    yield from self._raw_problems(loaded, index)
                else:
                    yield from self.problems(load_input(loaded, index), inputs)
            except TokenmillError as error:
                yield str(error)

    def _raw_problems(self, loaded: LoadedManifest[Any], index: int) -> Iterator[str]:
        root = loaded.input_url(index)
        for row in read_raw_files(loaded):
            if row["input"] != loaded.manifest.inputs[index].name:
                continue
            url = raw_url(root, row)
            self._checked.files += 1
            if not storage.exists(url):
                yield f"{url}: missing, but {loaded.url} was made from it"
                continue
            num_bytes, sha256 = storage.hash_file(url)
            self._checked.bytes += num_bytes
            if sha256 != row["sha256"]:
                yield f"{url}: the content changed since {loaded.url} was made from it"
