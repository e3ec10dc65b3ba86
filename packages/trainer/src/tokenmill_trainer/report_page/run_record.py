"""All that the folder of a run says, read without changing it.

A run may be going on, may have been killed, or be of another version: what is not there is left out, and what cannot be
read is told on the page in place of it.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tokenmill_core.config import read_toml, validate_config
from tokenmill_core.errors import ConfigError, InputError, TokenmillError
from tokenmill_core.lineage import Node, trace_lineage
from tokenmill_core.manifest import MANIFEST_NAME, CheckpointManifest, RunManifest, SourceUse
from tokenmill_core.manifest_io import LoadedManifest, load_manifest
from tokenmill_shards.open_samples import SamplesManifest, load_samples_manifest
from tokenmill_trainer.checkpoints.store import list_checkpoints
from tokenmill_trainer.model import ModelConfig, build_on_meta, num_parameters
from tokenmill_trainer.report_page.course import Course, read_course
from tokenmill_trainer.report_page.settings import flatten
from tokenmill_trainer.run_folder import RunFolder
from tokenmill_trainer.watching.step_log import each_step

T = TypeVar("T")

EVENTS_NAME = "events.jsonl"
SAMPLES_NAME = "samples.jsonl"
MAX_EVENTS = 500
MAX_SAMPLES = 200
MAX_LINES_TOLD = 5
"""Lines of a log that cannot be read and are named each; of further ones the page says how many there are."""


@dataclass(frozen=True)
class Rows:
    """The newest objects of a log, oldest first, and how many there are in all."""

    newest: list[dict[str, Any]]
    total: int


@dataclass(frozen=True)
class CheckpointRecord:
    """A checkpoint of the run: its manifest, or why that cannot be read."""

    name: str
    manifest: CheckpointManifest | None
    problem: str = ""


@dataclass(frozen=True)
class RunRecord:
    """One run, as the page shows it."""

    path: Path
    label: str
    """What the run is called on the page: no other one there has the same."""
    settings: dict[str, Any]
    """By their whole names."""
    parameters: int | None
    course: Course
    manifest: RunManifest | None
    """None until the run is finished."""
    mixture: LoadedManifest[SamplesManifest] | None
    lineage: Node | None
    problems: tuple[str, ...]
    """What could not be read, and why."""
    checkpoints: tuple[CheckpointRecord, ...]
    """Newest first."""
    events: Rows
    samples: Rows

    @property
    def total_steps(self) -> int | None:
        """Steps that the run is to have, if its settings say so."""
        steps = self.settings.get("training.steps")
        return steps if isinstance(steps, int) else None

    @property
    def drawn(self) -> tuple[int, tuple[SourceUse, ...]]:
        """(step, what was drawn from each source up to it), of the end or the newest checkpoint."""
        if self.manifest is not None:
            return self.manifest.step, self.manifest.sources
        saved = next((record.manifest for record in self.checkpoints if record.manifest), None)
        return (saved.step, saved.sources) if saved else (0, ())


def read_runs(paths: Sequence[Path]) -> list[RunRecord]:
    """The runs in the folders `paths`.

    Errors: `InputError` where there is no run, `ConfigError` where one is named twice.
    """
    return [read_run(path, label) for path, label in zip(paths, distinct_labels(paths), strict=True)]


def read_run(path: Path, label: str) -> RunRecord:
    """The run in folder `path`, or `InputError` where there is none."""
    folder = RunFolder(path)
    if not folder.has_run:
        raise InputError(f"{path}: no run here; name the --out of a `pretrain run`")
    problems: list[str] = []

    def attempt(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (TokenmillError, OSError) as error:
            problems.append(str(error))
            return None

    def rows(path: Path, number: int) -> Rows:
        with _telling(path, problems) as tell:
            return attempt(lambda: _newest(path, number, tell)) or Rows([], 0)

    settings = attempt(lambda: read_toml(str(folder.config_file))) or {}
    with _telling(folder.metrics_file, problems) as tell:
        course = attempt(lambda: read_course(folder.metrics_file, tell)) or Course()
    mixture = attempt(lambda: load_samples_manifest(str(folder.mixture_file)))
    finished = (path / MANIFEST_NAME).exists()
    return RunRecord(
        path=path,
        label=label,
        settings=dict(flatten(settings)),
        parameters=attempt(lambda: _num_parameters(settings)),
        course=course,
        manifest=attempt(lambda: load_manifest(str(path), RunManifest).manifest) if finished else None,
        mixture=mixture,
        lineage=trace_lineage(mixture) if mixture else None,
        checkpoints=tuple(_checkpoint(each) for each in list_checkpoints(folder.checkpoints)),
        events=rows(path / EVENTS_NAME, MAX_EVENTS),
        samples=rows(path / SAMPLES_NAME, MAX_SAMPLES),
        problems=tuple(problems),
    )


def distinct_labels(paths: Sequence[Path]) -> list[str]:
    """The end of each path, as much of it as tells it from the others."""
    parts = [path.resolve().parts for path in paths]
    for one, other in itertools.combinations(range(len(paths)), 2):
        if parts[one] == parts[other]:
            raise ConfigError(f"{paths[other]}: this run is named twice; leave one of them out")
    for length in range(1, max(map(len, parts)) + 1):
        labels = ["/".join(each[-length:]) for each in parts]
        if len(set(labels)) == len(labels):
            return labels
    return list(map(str, paths))


def _num_parameters(settings: dict[str, Any]) -> int | None:
    model = settings.get("model", {})
    if not isinstance(model, dict):
        raise ConfigError(f"config.toml: model is {model!r}, not a section with settings")
    if "vocab_size" not in model:
        return None
    return num_parameters(build_on_meta(validate_config(ModelConfig, model, "config.toml: model")))


@contextmanager
def _telling(path: Path, problems: list[str]) -> Iterator[Callable[[str], None]]:
    """What is told goes to `problems`; once it is much, only how much."""
    told = 0

    def tell(problem: str) -> None:
        nonlocal told
        told += 1
        if told <= MAX_LINES_TOLD:
            problems.append(problem)

    yield tell
    if told > MAX_LINES_TOLD:
        problems.append(f"{path}: {told - MAX_LINES_TOLD:,} more lines cannot be read")


def _checkpoint(path: Path) -> CheckpointRecord:
    try:
        return CheckpointRecord(path.name, load_manifest(str(path), CheckpointManifest).manifest)
    except (TokenmillError, OSError) as error:
        return CheckpointRecord(path.name, None, str(error))


def _newest(path: Path, number: int, tell: Callable[[str], None]) -> Rows:
    kept: deque[dict[str, Any]] = deque(maxlen=number)
    total = 0
    for total, row in enumerate(each_step(path, tell), start=1):  # noqa: B007
        kept.append(row)
    return Rows(list(kept), total)
