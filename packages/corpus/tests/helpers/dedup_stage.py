"""A small real stage around the phases of deduplication: JSON Lines in, what stays and a ledger of what goes out.

    filter   a task a file, in the order of their names; those called `against-…` hold what the others are cleaned of
    …        the phases of deduplication
    write    a task a file: what stays, one row a line

Probes come by environment: DEDUP_LOG is a file that gets a line a task run, DEDUP_DIE a phase whose first task ends its
process without a word.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from tokenmill_core.build import build_stage
from tokenmill_core.documents import Account
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import Counts, DocumentsManifest, FileEntry, Frozen
from tokenmill_core.stage import Inputs, Phase, Report, Stage, Task, Work
from tokenmill_core.storage import HashingWriter
from tokenmill_corpus.dedup import RULES, DedupSettings, SketchWriter, dedup_phases, dedup_report, duplicates, sketch
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.survivors import SurvivorsWriter, places_of, read_survivors

BATCH_ROWS = 50
_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.large_string()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("url", pa.string()),
        ("score", pa.float64()),
    ]
)


class DedupConfig(Frozen):
    folder: str
    dedup: DedupSettings = DedupSettings()


@dataclass(frozen=True)
class Probed:
    """A phase's `run`, watched."""

    name: str
    inner: Callable[[Task, Work], Report]

    def __call__(self, task: Task, work: Work) -> Report:
        if log := os.environ.get("DEDUP_LOG"):
            with Path(log).open("a") as file:
                file.write(f"{self.name} {task.index}\n")
        if os.environ.get("DEDUP_DIE") == self.name and task.index == 0:
            os._exit(9)
        return self.inner(task, work)


@dataclass(frozen=True)
class DedupStage(Stage):
    name: ClassVar[str] = "dedup"
    version: ClassVar[int] = 1

    config: DedupConfig
    inputs: Inputs = field(default_factory=Inputs)
    dataset_name: str = "dedup"

    def phases(self) -> Sequence[Phase]:
        phases = (
            Phase("filter", self.plan_filter, self.run_filter),
            *dedup_phases(self.config.dedup),
            Phase("write", self.plan_write, self.run_write),
        )
        return [Phase(phase.name, phase.plan, Probed(phase.name, phase.run)) for phase in phases]

    def manifest(self, common: dict[str, Any], work: Work) -> DocumentsManifest:
        return DocumentsManifest(**common)

    def extra_files(self, work: Work) -> Sequence[tuple[FileEntry, Path]]:
        return [write_lines(work.folder / "dedup.json", [dedup_report(work, self.config.dedup)])]

    def plan_filter(self, work: Work) -> Sequence[Task]:
        paths = sorted(Path(self.config.folder).iterdir())
        return [Task(index=index, payload={"path": str(path)}) for index, path in enumerate(paths)]

    def run_filter(self, task: Task, work: Work) -> Report:
        path = Path(task.payload["path"])
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        table = pa.Table.from_pylist(
            [{"file": f"{path.stem}/{path.name}", "row": i + 1} | row for i, row in enumerate(rows)], _SCHEMA
        )
        sketches = SketchWriter(work, task.index)
        with SurvivorsWriter(work, task.index) as writer:
            for batch in table.to_batches(max_chunksize=BATCH_ROWS):
                writer.write(batch)
                sketches.add(sketch(self.config.dedup, Documents(batch)))
        sketches.close()
        num_bytes = sum(len(row["text"].encode()) for row in rows)
        reference = path.name.startswith("against-")
        counts = Counts() if reference else Counts(input_documents=len(rows), input_bytes=num_bytes)
        return Report(counts=counts, extra={"survivors": len(rows), "reference": reference})

    def plan_write(self, work: Work) -> Sequence[Task]:
        references = [report.extra["reference"] for report in work.reports("filter")]
        return [Task(index=index, payload={}) for index, reference in enumerate(references) if not reference]

    def run_write(self, task: Task, work: Work) -> Report:
        rows = [row for batch in read_survivors(work, task.index) for row in batch.to_pylist()]
        found = duplicates(work, self.config.dedup, task.index)
        ledger = [self._ledger_row(work, found, i, rows[index]) for i, index in enumerate(found.indices)]
        account = Account()
        for row in ledger:
            account.drop(row["rule"], 1, len(row["text"].encode()))
        goes = set(found.indices.tolist())
        kept = [row for index, row in enumerate(rows) if index not in goes]
        files = [
            write_lines(work.path("write", f"{name}-{task.index:05d}.jsonl"), lines)[0]
            for name, lines in (("kept", kept), ("ledger", ledger))
        ]
        counts = work.reports("filter")[task.index].counts
        kept_bytes = sum(len(row["text"].encode()) for row in kept)
        counts = counts.model_copy(update={"documents": len(kept), "bytes": kept_bytes})
        return Report(files=tuple(files), counts=counts, ledger=tuple(account.ledger()))

    def _ledger_row(self, work: Work, found: Any, i: int, row: dict[str, Any]) -> dict[str, Any]:
        instead = None
        if found.kept_tasks[i] >= 0:
            instead = places_of(work, found.kept_tasks[i : i + 1], found.kept_indices[i : i + 1]).to_pylist()[0]
        return row | {"rule": RULES[found.rules[i]], "value": float(found.values[i]), "kept": instead}


def write_lines(path: Path, rows: Sequence[Any]) -> tuple[FileEntry, Path]:
    with HashingWriter(path) as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return FileEntry(path=path.name, bytes=file.bytes, sha256=file.sha256), path


@dataclass(frozen=True)
class Deduped:
    """What a run left."""

    folder: Path

    def _lines(self, name: str) -> list[Any]:
        paths = sorted(self.folder.glob(f"{name}-*.jsonl"))
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    @property
    def kept(self) -> list[dict[str, Any]]:
        return self._lines("kept")

    @property
    def texts(self) -> list[str]:
        return [row["text"] for row in self.kept]

    @property
    def ledger(self) -> list[dict[str, Any]]:
        return self._lines("ledger")

    @property
    def report(self) -> dict[str, Any]:
        return json.loads((self.folder / "dedup.json").read_text())

    @property
    def content(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.iterdir() if path.name != "manifest.json"}


def deduplicate(
    folder: Path, files: dict[str, Sequence[Any]], *, out: str = "out", workers: int = 1, **settings: Any
) -> Deduped:
    """Write `files`, name ─▶ rows or plain texts, and run the stage over them with these settings of deduplication."""
    raw = folder / "raw"
    raw.mkdir(exist_ok=True)
    for name, rows in files.items():
        lines = [json.dumps(row if isinstance(row, dict) else {"text": row}) for row in rows]
        (raw / f"{name}.jsonl").write_text("".join(line + "\n" for line in lines))
    stage = DedupStage(DedupConfig(folder=str(raw), dedup=DedupSettings(**settings)))
    build_stage(stage, str(folder / out), LocalExecutor(workers))
    return Deduped(folder / out)
