"""Building a stage's output: up to date or not, the work folder, the tasks, and publication.

    fingerprint ─▶ up to date? ─▶ check inputs ─▶ tasks in OUT/.work/<fingerprint> ─▶ publish ─▶ manifest.json, last

Killed at any moment, OUT either has the manifest of a complete build or none, and the next run goes on from the tasks
that were finished. A changed config has another fingerprint, so it never meets stale pieces.
"""

import importlib.metadata
import json
import logging
import os
import platform
import shutil
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tokenmill_core import storage
from tokenmill_core.errors import ConfigError, InputError, TokenmillError
from tokenmill_core.executor import Executor
from tokenmill_core.inputs import modified
from tokenmill_core.manifest import MANIFEST_NAME, RAW_FILES_NAME, FileEntry, ManifestBase, StageRef
from tokenmill_core.manifest_io import LoadedManifest, check_hash, check_sizes, load_manifest, publish
from tokenmill_core.output import check_output, is_single_file, move_in
from tokenmill_core.progress import ProgressBar
from tokenmill_core.rejects import gather_rejects
from tokenmill_core.stage import Phase, Stage, Work, fingerprint_of, sum_notes, sum_reports
from tokenmill_core.work_folder import clear_finished, work_folder

_LOG = logging.getLogger("tokenmill")


@dataclass(frozen=True)
class Built:
    """The outcome of `build_stage`."""

    loaded: LoadedManifest[Any]
    up_to_date: bool
    """Whether it was there already, and nothing was done."""


def build_stage(stage: Stage, out: str, executor: Executor, *, force: bool = False) -> Built:
    """Bring `out` up to date with `stage`: a folder, or a JSON file for a stage that writes no files.

    Errors: `InputError` where `out` holds something else; whatever the stage's tasks raise. Nothing is published then.
    """
    check_name(stage.dataset_name)
    check_output(stage, out)
    current = None if force else find_current(stage, out)
    if current is not None:
        clear_finished(out, stage.fingerprint())
        return Built(loaded=current, up_to_date=True)
    times = input_times(stage)
    check_input_files(stage)
    folder, name = (storage.parent(out), os.path.basename(out)) if is_single_file(out) else (out, MANIFEST_NAME)
    with work_folder(out, stage.fingerprint()) as work:
        keep_work_of(times, work)
        for phase in stage.phases():
            run_phase(stage, phase, work, executor)
        files, sources = assemble(stage, work)
        manifest = stage.manifest(common_fields(stage, work, folder, files), work)
        check_unchanged(times, work)
        move_in(sources, out)
        loaded = publish(manifest, folder, name)
    if manifest.counts.input_documents and not manifest.counts.documents:
        _LOG.warning("%s: nothing was kept of %d documents", out, manifest.counts.input_documents)
    return Built(loaded=loaded, up_to_date=False)


def check_name(name: str) -> None:
    """A dataset's name is text on one line: it stands in manifests and messages."""
    if not name.strip() or any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise ConfigError(f"--name {name!r}: give a name without control characters, in valid Unicode")


def find_current(stage: Stage, out: str) -> LoadedManifest[Any] | None:
    """The manifest at `out`, if it is what `stage` would write and its files are there."""
    url = out if is_single_file(out) else storage.join(out, MANIFEST_NAME)
    if not storage.exists(url):
        return None
    try:
        loaded = load_manifest(url)
        if fingerprint_of(loaded.manifest) != stage.fingerprint():
            return None
        check_sizes(loaded)
    except TokenmillError as error:
        _LOG.warning("building again: %s", error)
        return None
    return loaded


def check_input_files(stage: Stage) -> None:
    """Every file of the input manifests is what its manifest vouches for."""
    loaded = stage.inputs.manifests
    for item in loaded:
        check_sizes(item)
    if not stage.reads_input_files:
        return
    total = sum(entry.bytes for item in loaded for entry in item.manifest.files)
    with ProgressBar("checking inputs", total) as bar:
        for item in loaded:
            for entry in item.manifest.files:
                check_hash(item, entry, bar.advance)


def input_times(stage: Stage) -> dict[str, int | None]:
    """When each file that the stage reads was last written to, as of before it was hashed; none for remote ones."""
    times = {file.url: file.modified_ns for group in stage.inputs.raw for file in group.files}
    for item in stage.inputs.manifests if stage.reads_input_files else ():
        for entry in item.manifest.files:
            url = storage.inside(item.folder, entry.path)
            times[url] = modified(url)
    return times


def keep_work_of(times: dict[str, int | None], work: Work) -> None:
    """Go on with what lies in the work folder only if it was made of the very files that are there now.

    Their content is as it should be, but that of files which were changed and put back was read in between.
    """
    # Not by orjson: a path may hold bytes that are no UTF-8.
    path, content = work.folder / "input_times.json", json.dumps(times, sort_keys=True).encode()
    if work.folder.exists() and (not path.exists() or path.read_bytes() != content):
        shutil.rmtree(work.folder)
    work.folder.mkdir(parents=True, exist_ok=True)
    storage.write_atomic(path, content)


def check_unchanged(times: dict[str, int | None], work: Work) -> None:
    """No input was written to since `times` were taken, or `InputError`, and nothing is kept of the build."""
    for url, time in times.items():
        try:
            unchanged = time == modified(url)
        except OSError:
            unchanged = False
        if not unchanged:
            shutil.rmtree(work.folder)
            raise InputError(f"{url} changed while it was being read, so nothing is published: run again")


def run_phase(stage: Stage, phase: Phase, work: Work, executor: Executor) -> None:
    """Run the tasks of a phase that are not done yet."""
    (work.folder / phase.name).mkdir(parents=True, exist_ok=True)
    tasks = phase.plan(work)
    todo = [task for task in tasks if not work.has_report(phase.name, task.index)]
    with ProgressBar(f"{stage.name} {stage.dataset_name}: {phase.name}", sum(t.weight for t in tasks)) as bar:
        bar.advance(sum(t.weight for t in tasks) - sum(t.weight for t in todo))
        executor.run(phase, todo, work, lambda task: bar.advance(task.weight))


def assemble(stage: Stage, work: Work) -> tuple[list[FileEntry], dict[str, Path]]:
    """The dataset's files and where each lies now."""
    phases = [phase.name for phase in stage.phases()]
    files: list[FileEntry] = []
    sources: dict[str, Path] = {}
    for phase in phases[-1:]:
        for entry in (entry for report in work.reports(phase) for entry in report.files):
            files.append(entry)
            sources[entry.path] = work.path(phase, entry.path)
    for entry, path in (*stage.extra_files(work), *gather_rejects(work, phases), *list_raw_files(stage, work)):
        files.append(entry)
        sources[entry.path] = path
    return files, sources


def list_raw_files(stage: Stage, work: Work) -> list[tuple[FileEntry, Path]]:
    """The raw files behind this dataset, written down as a file of it."""
    path = work.folder / RAW_FILES_NAME
    if not stage.inputs.raw:
        return []
    with storage.HashingWriter(path) as writer:
        for group in stage.inputs.raw:
            for file in group.files:
                row = {"input": group.name, "path": file.name, "bytes": file.bytes, "sha256": file.sha256}
                writer.write(orjson.dumps(row) + b"\n")
    return [(FileEntry(path=RAW_FILES_NAME, bytes=writer.bytes, sha256=writer.sha256), path)]


def common_fields(stage: Stage, work: Work, folder: str, files: list[FileEntry]) -> dict[str, Any]:
    """The fields that a stage's manifest shares with all others. Counts are those of the last phase."""
    phases = [phase.name for phase in stage.phases()]
    totals = [sum_reports(work.reports(phase)) for phase in phases]
    return {
        "name": stage.dataset_name,
        "stage": StageRef(name=stage.name, version=stage.version),
        "inputs": stage.inputs.refs(folder),
        "config": stage.config.model_dump(mode="json"),
        "files": tuple(files),
        "counts": totals[-1].counts if totals else ManifestBase.model_fields["counts"].default,
        "ledger": totals[-1].ledger if totals else (),
        "notes": sum_notes([stage.inputs.notes(), *(total.notes for total in totals)]),
        "tools": tool_versions(stage.tools),
    }


def tool_versions(distributions: tuple[str, ...]) -> dict[str, str]:
    """Versions of Python and of the distributions that decide what is written."""
    names = ("tokenmill-core", *distributions)
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}
