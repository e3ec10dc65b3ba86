"""A stage: (inputs, config) ─▶ tasks ─▶ a report each ─▶ one manifest.

A stage is cut into phases, a phase into tasks. Tasks depend on the data alone, never on the number of workers, and what
a task gives lies on disk: its files, and last its report. So a rerun does only the tasks that have no report, and any
executor gives the same bytes. Running a stage is `build.build_stage`.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import orjson
from pydantic import BaseModel

from tokenmill_core import storage
from tokenmill_core.documents import merge_ledgers
from tokenmill_core.errors import InputError, ManifestError
from tokenmill_core.inputs import RawGroup, expand_inputs, hash_group
from tokenmill_core.manifest import (
    Counts,
    FileEntry,
    Frozen,
    InputRef,
    Kind,
    LedgerRow,
    ManifestBase,
    recordable,
    sha256_of_json,
)
from tokenmill_core.manifest_io import LoadedManifest, input_ref, is_manifest, load_manifest
from tokenmill_core.progress import ProgressBar
from tokenmill_core.readers import Format

_LOG = logging.getLogger("tokenmill")


class Report(Frozen):
    """What one task did."""

    files: tuple[FileEntry, ...] = ()
    """Files of the dataset that the task wrote, relative to its phase's folder."""
    counts: Counts = Counts()
    ledger: tuple[LedgerRow, ...] = ()
    notes: dict[str, int] = {}
    extra: dict[str, Any] = {}
    """What later phases and the manifest need to know, as JSON."""


@dataclass(frozen=True)
class Task:
    """A unit of work: small enough to lose, large enough to be worth a process."""

    index: int
    payload: dict[str, Any]
    """What to do, as JSON."""
    weight: int = 1
    """How much work it is, for the progress bar; bytes where it reads files."""


@dataclass(frozen=True)
class Work:
    """The folder where an unfinished build lies, one folder a phase."""

    folder: Path

    def path(self, phase: str, name: str) -> Path:
        """Where file `name` of a phase lies."""
        return self.folder / phase / name

    def report_path(self, phase: str, index: int) -> Path:
        """Where the report of a task lies. It is written when the task is done, and means that it is."""
        return self.folder / phase / "reports" / f"{index:06d}.json"

    def has_report(self, phase: str, index: int) -> bool:
        """Whether the task is done."""
        return self.report_path(phase, index).exists()

    def report(self, phase: str, index: int) -> Report:
        """The report of a finished task."""
        return Report.model_validate(orjson.loads(self.report_path(phase, index).read_bytes()))

    def reports(self, phase: str) -> list[Report]:
        """The reports of a finished phase, in the order of its tasks."""
        paths = sorted((self.folder / phase / "reports").glob("*.json"))
        return [Report.model_validate(orjson.loads(path.read_bytes())) for path in paths]

    def write_report(self, phase: str, index: int, report: Report) -> None:
        """Mark a task as done."""
        path = self.report_path(phase, index)
        path.parent.mkdir(parents=True, exist_ok=True)
        storage.write_atomic(path, report.model_dump_json().encode())


@dataclass(frozen=True)
class Phase:
    """One pass over the data. `run` is called in a worker: a method of a picklable stage, or a plain function."""

    name: str
    plan: Callable[[Work], Sequence[Task]]
    run: Callable[[Task, Work], Report]
    alone: bool = False
    """Whether workers of the phases before are ended first, for the memory that they hold."""


@dataclass(frozen=True)
class Inputs:
    """What a stage reads: groups of raw files, and manifests."""

    raw: tuple[RawGroup, ...] = ()
    manifests: tuple[LoadedManifest[Any], ...] = ()

    def refs(self, folder: str) -> tuple[InputRef, ...]:
        """References to every input for a manifest that will lie in `folder`."""
        raw = [
            InputRef(
                kind=Kind.RAW,
                name=group.name,
                version="",
                digest=group.digest,
                path=storage.relative_to(group.root, folder),
            )
            for group in self.raw
        ]
        return (*raw, *(input_ref(loaded, folder) for loaded in self.manifests))

    def notes(self) -> dict[str, int]:
        """What was noticed while the inputs were listed."""
        return sum_notes(group.notes for group in self.raw)

    def default_name(self) -> str:
        """A name for what is made of these inputs."""
        return shared_name([*(group.name for group in self.raw), *(item.manifest.name for item in self.manifests)])


def shared_name(names: Sequence[str]) -> str:
    """One name for what is made of several things."""
    names = list(dict.fromkeys(names))
    return "+".join(names) if len(names) <= 3 else f"{'+'.join(names[:2])}+{len(names) - 2}-more"


def resolve_inputs(
    arguments: Sequence[str],
    kind: type[ManifestBase],
    *,
    format: Format | None = None,
    hashing: bool = True,
) -> Inputs:
    """INPUT arguments as manifests of `kind` and groups of raw files, in an order of their own.

    A stage is built from hashed files; without `hashing` they are only found, to be looked at.
    """
    if not arguments:
        raise InputError("no INPUT given: name a file, folder, glob, URL or manifest")
    from_manifests = [argument for argument in arguments if is_manifest(argument)]
    loaded = [load_manifest(argument, kind) for argument in from_manifests]
    manifests = {item.manifest.digest: item for item in loaded}
    if len(manifests) < len(loaded):
        _LOG.warning("a dataset is given more than once and read once: %s", ", ".join(from_manifests))
    raw = [argument for argument in arguments if argument not in from_manifests]
    groups = expand_inputs(raw, format=format) if raw else []
    groups = _hashed(groups) if hashing else groups
    _refuse_shared_names(groups, list(manifests.values()))
    ordered = sorted(manifests.values(), key=lambda loaded: (loaded.manifest.name, loaded.manifest.digest))
    return Inputs(raw=tuple(groups), manifests=tuple(ordered))


def _hashed(groups: Sequence[RawGroup]) -> list[RawGroup]:
    if not groups:
        return []
    with ProgressBar("hashing inputs", sum(file.bytes for group in groups for file in group.files)) as bar:
        return [hash_group(group, bar.advance) for group in groups]


def _refuse_shared_names(groups: Sequence[RawGroup], manifests: Sequence[LoadedManifest[Any]]) -> None:
    names = [group.name for group in groups] + [loaded.manifest.name for loaded in manifests]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ManifestError(f"two inputs are called {', '.join(twice)}: build one of them again with another --name")


class Stage(ABC):
    """What a stage is to the machinery that runs it. Instances are picklable and do not change."""

    name: ClassVar[str]
    version: ClassVar[int]
    """Raised whenever the output for the same inputs and config would change."""
    tools: ClassVar[tuple[str, ...]] = ()
    """Distributions whose versions are recorded."""
    reads_input_files: ClassVar[bool] = True
    """Whether the content of the input manifests' files is read, and so hashed before."""
    writes_files: ClassVar[bool] = True
    """Whether its phases write files beside the manifest, so that this needs a folder of its own."""

    config: BaseModel
    """The settings that decide the output, and no others."""
    inputs: Inputs
    dataset_name: str

    @abstractmethod
    def phases(self) -> Sequence[Phase]:
        """The passes over the data. The files of the last one make up the dataset."""

    @abstractmethod
    def manifest(self, common: dict[str, Any], work: Work) -> ManifestBase:
        """The manifest, given the fields that every kind has."""

    def extra_files(self, work: Work) -> Sequence[tuple[FileEntry, Path]]:
        """Files of the dataset that belong to no task, and where they lie in the work folder."""
        return ()

    def identity(self) -> dict[str, Any]:
        """Everything that decides the output."""
        return identity_of(
            name=self.dataset_name,
            stage={"name": self.name, "version": self.version},
            config=recordable(self.config.model_dump(mode="json")),
            inputs=self.inputs.refs("."),
        )

    def fingerprint(self) -> str:
        """Key of the work folder, and of being up to date."""
        return sha256_of_json(self.identity())


def identity_of(
    *, name: str, stage: dict[str, Any], config: dict[str, Any], inputs: Iterable[InputRef]
) -> dict[str, Any]:
    """What a fingerprint is taken of; the same from a stage about to run and from a manifest it wrote."""
    return {
        "name": name,
        "stage": stage,
        "config": config,
        "inputs": [[ref.kind, ref.name, ref.version, ref.digest] for ref in inputs],
    }


def fingerprint_of(manifest: ManifestBase) -> str:
    """The fingerprint of the stage that wrote `manifest`."""
    body = manifest.model_dump(mode="json")
    return sha256_of_json(
        identity_of(name=manifest.name, stage=body["stage"], config=body["config"], inputs=manifest.inputs)
    )


@dataclass(frozen=True)
class StageType:
    """A stage as packages offer it to `prep run`, by the entry point group `tokenmill.stages`."""

    config: type[BaseModel]
    build: Callable[[Any, Sequence[str], str | None], Stage]
    """(config, INPUT arguments, dataset name or none) ─▶ a stage ready to run."""
    suffix: str = ""
    """Ending of the default output: none for a folder, `.json` for a manifest that stands alone."""
    path_settings: tuple[str, ...] = ()
    """Settings that are paths, as `section.name`, or lists of them: in a recipe they are relative to it, as its inputs
    are."""
    named_inputs: bool = False
    """Whether INPUT arguments have the form NAME=PATH."""


@dataclass(frozen=True)
class Totals:
    """The sum of a phase's reports."""

    counts: Counts
    ledger: tuple[LedgerRow, ...]
    notes: dict[str, int] = field(default_factory=dict)


def sum_reports(reports: Sequence[Report]) -> Totals:
    """Counts, ledger and notes of all reports together."""
    counts = {name: sum(getattr(r.counts, name) for r in reports) for name in Counts.model_fields}
    return Totals(
        counts=Counts(**counts),
        ledger=tuple(merge_ledgers(r.ledger for r in reports)),
        notes=sum_notes(r.notes for r in reports),
    )


def sum_notes(many: Iterable[dict[str, int]]) -> dict[str, int]:
    """Notes added up, in the order of their names."""
    total: dict[str, int] = {}
    for notes in many:
        for name, count in notes.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items()))
