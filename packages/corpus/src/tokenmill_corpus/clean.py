"""The `clean` stage: raw files or documents ─▶ clean documents.

    filter   read ─▶ families of rules ─▶ survivors (Arrow) and their sketches, a task a group of files
    …        the phases of deduplication, over sketches and survivors: see `dedup`
    write    survivors that stay ─▶ part-NNNNN.parquet (zstd), and the full ledger if it is asked for

In = kept + dropped, in documents and in bytes, for each task and so for the whole. The documents of `against` take part
in deduplication, always win, and are never written.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill_core.documents import Account
from tokenmill_core.manifest import Counts, DocumentsManifest, FileEntry, ManifestBase
from tokenmill_core.rejects import keeping_rejects
from tokenmill_core.sources import document_tasks, read_task
from tokenmill_core.stage import Inputs, Phase, Report, Stage, StageType, Task, Work
from tokenmill_core.storage import HashingWriter
from tokenmill_corpus.columns import counting, refuse_empty
from tokenmill_corpus.config import CleanConfig, Ledger
from tokenmill_corpus.dedup import SketchWriter, cut_phases, dedup_phases, dedup_report, sketch
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters import Judge, edit_only
from tokenmill_corpus.filters.blocklist import LISTS
from tokenmill_corpus.full_ledger import FullLedger
from tokenmill_corpus.inputs import CleanInputs, recorded_config, resolve_clean_inputs
from tokenmill_corpus.remaining import Remaining
from tokenmill_corpus.survivors import FILTER, SurvivorsWriter


@dataclass(frozen=True)
class CleanStage(Stage):
    """See the module's docstring."""

    name: ClassVar[str] = "clean"
    version: ClassVar[int] = 3
    tools: ClassVar[tuple[str, ...]] = ("tokenmill-corpus", "pyarrow")

    config: CleanConfig
    inputs: Inputs
    dataset_name: str
    resolved: CleanInputs
    """The inputs by what they are for, and the families with their files."""

    def phases(self) -> Sequence[Phase]:
        """Filter, dedup, write."""
        return (
            Phase(FILTER, self.plan_filter, self.run_filter),
            *dedup_phases(self.config.dedup),
            *cut_phases(self.config.dedup),
            Phase("write", self.plan_write, self.run_write),
        )

    def manifest(self, common: dict[str, Any], work: Work) -> ManifestBase:
        """The documents manifest."""
        used = (name for family in self.resolved.families.values() for name in family.distributions())
        return DocumentsManifest(**common | {"tools": common["tools"] | {name: version(name) for name in used}})

    def plan_filter(self, work: Work) -> Sequence[Task]:
        """A task for each group of small files, and for each share of a large one; those of `against` come last."""
        options = self.config.read_options()
        tasks = document_tasks(self.resolved.documents, options)
        others = document_tasks(self.resolved.against, options)
        references = [
            replace(task, index=len(tasks) + task.index, payload=task.payload | {"reference": True}) for task in others
        ]
        return [*tasks, *references]

    def run_filter(self, task: Task, work: Work) -> Report:
        """Read and judge documents; the survivors and their sketches go to the work folder."""
        if task.payload.get("reference"):
            return self._run_reference(task, work)
        rows, filled = FullLedger(), Counter[str]()
        full = self.config.ledger is Ledger.FULL
        with keeping_rejects(work, FILTER, task.index) as account:
            judge = Judge(self.resolved.families, account, scores=self.config.scores)
            if full:
                judge.on_drop, judge.on_edit = rows.drop, rows.edit
            documents = counting(self._read(task, account), self.config.read_options().carry, filled)
            num_survivors = self._keep(map(judge, documents), task, work)
        if full:
            rows.save(work.path(FILTER, f"{task.index:06d}"))
        counts = Counts(input_documents=account.documents, input_bytes=account.bytes)
        extra = {"survivors": num_survivors, "reference": False, "findings": judge.findings, "filled": dict(filled)}
        return Report(counts=counts, ledger=tuple(account.ledger()), notes=account.notes, extra=extra)

    def _run_reference(self, task: Task, work: Work) -> Report:
        """Documents of `against`: edited as the others are, so that equals stay equal, and judged by nobody."""
        edited = (edit_only(self.resolved.families, documents) for documents in self._read(task, Account()))
        num_survivors = self._keep(edited, task, work)
        return Report(extra={"survivors": num_survivors, "reference": True})

    def _read(self, task: Task, account: Account) -> Iterator[Documents]:
        return map(Documents, read_task(task, self.config.read_options(), account))

    def _keep(self, batches: Iterable[Documents], task: Task, work: Work) -> int:
        """Write survivors and their sketches; how many there are."""
        sketches = SketchWriter(work, task.index)
        with SurvivorsWriter(work, task.index) as writer:
            for documents in batches:
                if len(documents):
                    writer.write(documents.batch)
                    sketches.add(sketch(self.config.dedup, documents))
        sketches.close()
        return writer.num_documents

    def plan_write(self, work: Work) -> Sequence[Task]:
        """A task for each filter task that was not of `against`."""
        reports = work.reports(FILTER)
        filled: Counter[str] = Counter()
        for report in reports:
            filled.update(report.extra.get("filled", {}))
        refuse_empty(filled, self.config.columns_read())
        return [
            Task(index=index, payload={}, weight=report.counts.input_bytes)
            for index, report in enumerate(reports)
            if not report.extra["reference"]
        ]

    def run_write(self, task: Task, work: Work) -> Report:
        """Write what stays; the report carries the whole account, from the filter task's reading on."""
        filtered = work.report(FILTER, task.index)
        full = self.config.ledger is Ledger.FULL
        remaining = Remaining(self.config, work, task.index, full_ledger=full)
        part = work.path("write", f"part-{task.index:05d}.parquet")
        files = write_documents(remaining, part, self.config.compression_level)
        if full:
            remaining.rows.load(work.path(FILTER, f"{task.index:06d}"))
            files += remaining.rows.write(part.parent, task.index)
        counts = filtered.counts.model_copy(update={"documents": remaining.documents, "bytes": remaining.bytes})
        for row in filtered.ledger:
            remaining.account.drop(row.reason, row.documents, row.bytes)
        return Report(files=files, counts=counts, ledger=tuple(remaining.account.ledger()))

    def extra_files(self, work: Work) -> Sequence[tuple[FileEntry, Path]]:
        """Reports of deduplication and of the families that make one."""
        reports: dict[str, Any] = {"dedup": dedup_report(work, self.config.dedup)}
        findings = [report.extra.get("findings", {}) for report in work.reports(FILTER)]
        for name, family in self.resolved.families.items():
            reports[name] = family.report(itertools.chain.from_iterable(found.get(name, ()) for found in findings))
        return [_write_json(work, f"{name}.json", report) for name, report in reports.items() if report]


def _write_json(work: Work, name: str, report: Mapping[str, Any]) -> tuple[FileEntry, Path]:
    path = work.folder / name
    with HashingWriter(path) as file:
        file.write(orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")
    return FileEntry(path=name, bytes=file.bytes, sha256=file.sha256), path


def write_documents(batches: Iterable[pa.RecordBatch], path: Path, compression_level: int) -> tuple[FileEntry, ...]:
    """Write documents as Parquet, a row group a batch. Nothing is written where there are none."""
    first = next(iterator := iter(batches), None)
    if first is None:
        return ()
    num_rows = 0
    with (
        HashingWriter(path) as file,
        pq.ParquetWriter(file, first.schema, compression="zstd", compression_level=compression_level) as writer,
    ):
        for batch in itertools.chain([first], iterator):
            writer.write_batch(batch, row_group_size=len(batch))
            num_rows += len(batch)
    return (FileEntry(path=path.name, bytes=file.bytes, sha256=file.sha256, documents=num_rows),)


def build(config: CleanConfig, inputs: Sequence[str], name: str | None) -> CleanStage:
    """The stage for INPUT arguments."""
    resolved = resolve_clean_inputs(config, inputs)
    return CleanStage(
        config=recorded_config(config, resolved),
        inputs=resolved.together(),
        dataset_name=name or resolved.documents.default_name(),
        resolved=resolved,
    )


PATH_SETTINGS = (
    "against",
    *(f"filter.blocklist.{name}" for name in LISTS),
    "filter.language.model",
    "filter.classifier.model",
    "filter.decontamination.benchmarks.path",
)
STAGE = StageType(config=CleanConfig, build=build, path_settings=PATH_SETTINGS)
