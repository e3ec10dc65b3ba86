"""The `clean` stage: raw files or documents ─▶ clean documents.

    filter   read ─▶ measure ─▶ rules ─▶ survivors (Arrow) and their digests, a task a group of files
    dedup    all digests ─▶ which survivors are the first of their text
    write    survivors that stay ─▶ part-NNNNN.parquet (zstd)

In = kept + dropped, in documents and in bytes, for each task and so for the whole.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from tokenmill_core.documents import DOCUMENT_SCHEMA, Account, merge_ledgers
from tokenmill_core.manifest import Counts, DocumentsManifest, FileEntry, Frozen, LedgerRow, ManifestBase
from tokenmill_core.readers import ReadOptions
from tokenmill_core.rejects import keeping_rejects
from tokenmill_core.sources import document_tasks, read_task
from tokenmill_core.stage import Inputs, Phase, Report, Stage, StageType, Task, Work, resolve_inputs
from tokenmill_core.storage import HashingWriter
from tokenmill_corpus.dedup import DIGEST_DTYPE, Digests, first_occurrences, text_digests
from tokenmill_corpus.filters import NativeFilter, Verdict
from tokenmill_corpus.measures import measure
from tokenmill_corpus.text_buffers import text_buffers


class Dedup(StrEnum):
    """How duplicates are found."""

    NONE = "none"
    EXACT = "exact"


class CleanConfig(Frozen):
    """Settings of `prep clean`."""

    reader: ReadOptions = ReadOptions()
    filter: NativeFilter = NativeFilter()
    dedup: Dedup = Dedup.EXACT
    """`exact`: of documents with the same text the first stays; `none`."""
    compression_level: int = Field(default=3, ge=1, le=22)
    """zstd level of the Parquet files."""


@dataclass(frozen=True)
class CleanStage(Stage):
    """See the module's docstring."""

    name: ClassVar[str] = "clean"
    version: ClassVar[int] = 1
    tools: ClassVar[tuple[str, ...]] = ("tokenmill-corpus", "pyarrow")

    config: CleanConfig
    inputs: Inputs
    dataset_name: str

    def phases(self) -> Sequence[Phase]:
        """Filter, dedup, write."""
        return (
            Phase("filter", self.plan_filter, self.run_filter),
            Phase("dedup", self.plan_dedup, self.run_dedup),
            Phase("write", self.plan_write, self.run_write),
        )

    def manifest(self, common: dict[str, Any], work: Work) -> ManifestBase:
        """The documents manifest."""
        return DocumentsManifest(**common)

    def plan_filter(self, work: Work) -> Sequence[Task]:
        """A task for each group of small files, and for each share of a large one."""
        return document_tasks(self.inputs, self.config.reader)

    def run_filter(self, task: Task, work: Work) -> Report:
        """Read and judge documents; the survivors and their digests go to the work folder."""
        digests: list[Digests] = []
        with (
            keeping_rejects(work, "filter", task.index) as account,
            HashingWriter(work.path("filter", f"{task.index:06d}.arrow")) as file,
            pa.ipc.new_file(file, DOCUMENT_SCHEMA) as writer,
        ):
            for batch in self._survivors(task, account):
                writer.write_batch(batch)
                digests.append(text_digests(text_buffers(batch)))
        save_array(work.path("filter", f"{task.index:06d}.npy"), np.concatenate([np.empty(0, DIGEST_DTYPE), *digests]))
        counts = Counts(input_documents=account.documents, input_bytes=account.bytes)
        return Report(counts=counts, ledger=tuple(account.ledger()), notes=account.notes)

    def _survivors(self, task: Task, account: Account) -> Iterator[pa.RecordBatch]:
        for batch in read_task(task, self.config.reader, account):
            text = text_buffers(batch)
            verdict = self.config.filter.judge(measure(text))
            drop(verdict, text.num_bytes, account)
            if verdict.keep.any():
                yield batch.filter(pa.array(verdict.keep))

    def plan_dedup(self, work: Work) -> Sequence[Task]:
        """One task: the digests of a billion documents are 16 GB, and issue no traffic but this."""
        return [Task(index=0, payload={})] if self.config.dedup is Dedup.EXACT else []

    def run_dedup(self, task: Task, work: Work) -> Report:
        """Mark for each filter task which of its survivors stay."""
        paths = sorted((work.folder / "filter").glob("*.npy"))
        keeps = first_occurrences([np.load(path, allow_pickle=False) for path in paths])
        for path, keep in zip(paths, keeps, strict=True):
            save_array(work.path("dedup", path.name), keep)
        return Report()

    def plan_write(self, work: Work) -> Sequence[Task]:
        """A task for each filter task."""
        return [Task(index=t.index, payload={}, weight=t.weight) for t in self.plan_filter(work)]

    def run_write(self, task: Task, work: Work) -> Report:
        """Write what stays; the report carries the whole account, from the filter task's reading on."""
        filtered = work.reports("filter")[task.index]
        name = f"{task.index:06d}"
        with pa.OSFile(str(work.path("filter", f"{name}.arrow"))) as file, pa.ipc.open_file(file) as reader:
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            kept = _Kept(batches, self._keep(name, work))
            path = work.path("write", f"part-{task.index:05d}.parquet")
            files = write_documents(kept, path, self.config.compression_level)
        duplicates = LedgerRow(reason="exact_duplicate", documents=kept.dropped, bytes=kept.dropped_bytes)
        counts = filtered.counts.model_copy(update={"documents": kept.documents, "bytes": kept.bytes})
        dropped = [duplicates] if kept.dropped else []
        return Report(files=files, counts=counts, ledger=tuple(merge_ledgers([filtered.ledger, dropped])))

    def _keep(self, name: str, work: Work) -> NDArray[np.bool_] | None:
        path = work.path("dedup", f"{name}.npy")
        return np.load(path, allow_pickle=False) if self.config.dedup is Dedup.EXACT else None


class _Kept:
    """The documents of `batches` that `keep` says stay, counted as they pass."""

    def __init__(self, batches: Iterator[pa.RecordBatch], keep: NDArray[np.bool_] | None) -> None:
        self._batches, self._keep = batches, keep
        self.documents = self.bytes = self.dropped = self.dropped_bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        start = 0
        for batch in self._batches:
            num_bytes = text_buffers(batch).num_bytes
            keep = np.ones(len(batch), np.bool_) if self._keep is None else self._keep[start : start + len(batch)]
            start += len(batch)
            self.documents += int(keep.sum())
            self.bytes += int(num_bytes[keep].sum())
            self.dropped += int((~keep).sum())
            self.dropped_bytes += int(num_bytes[~keep].sum())
            if keep.any():
                yield batch.filter(pa.array(keep))


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write a .npy that is on disk, whole, before the report that vouches for it."""
    with HashingWriter(path) as file:
        np.save(file, array, allow_pickle=False)


def drop(verdict: Verdict, num_bytes: NDArray[np.int64], account: Account) -> None:
    """Enter what a verdict drops into the account."""
    for index, reason in enumerate(verdict.reasons):
        hit = verdict.reason == index
        account.drop(reason, int(hit.sum()), int(num_bytes[hit].sum()))


def write_documents(batches: Iterable[pa.RecordBatch], path: Path, compression_level: int) -> tuple[FileEntry, ...]:
    """Write documents as Parquet, a row group a batch. Nothing is written where there are none."""
    first = next(iterator := iter(batches), None)
    if first is None:
        return ()
    num_rows = 0
    with (
        HashingWriter(path) as file,
        pq.ParquetWriter(file, DOCUMENT_SCHEMA, compression="zstd", compression_level=compression_level) as writer,
    ):
        for batch in itertools.chain([first], iterator):
            writer.write_batch(batch, row_group_size=len(batch))
            num_rows += len(batch)
    return (FileEntry(path=path.name, bytes=file.bytes, sha256=file.sha256, documents=num_rows),)


def build(config: CleanConfig, inputs: Sequence[str], name: str | None) -> CleanStage:
    """The stage for INPUT arguments."""
    resolved = resolve_inputs(inputs, DocumentsManifest, format=config.reader.format)
    return CleanStage(config=config, inputs=resolved, dataset_name=name or resolved.default_name())


STAGE = StageType(config=CleanConfig, build=build)
