"""The phases that cut repeated parts out of documents, run on texts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from dedup_stage import DedupConfig, DedupStage, Probed, write_lines

from tokenmill_core.build import build_stage
from tokenmill_core.compiled.text_buffers import text_buffers
from tokenmill_core.documents import Account
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.stage import Phase, Report, Task, Work
from tokenmill_corpus.dedup import DedupSettings, dedup_phases, duplicates
from tokenmill_corpus.dedup.cut_phases import cut_phases, cuts
from tokenmill_corpus.dedup.cuts import apply_cuts
from tokenmill_corpus.survivors import FILTER, SurvivorsWriter, read_survivors

BATCH_ROWS = 3


def write_survivors(
    work: Work, tasks: Sequence[Sequence[str]], references: Sequence[int] = (), batch_rows: int = BATCH_ROWS
) -> None:
    """What the filter phase would leave of these texts, a task each; those in `references` are of `against`."""
    (work.folder / FILTER).mkdir(parents=True, exist_ok=True)
    for index, texts in enumerate(tasks):
        table = pa.table({"text": pa.array(texts, pa.large_string())})
        with SurvivorsWriter(work, index) as writer:
            for batch in table.to_batches(max_chunksize=batch_rows):
                writer.write(batch)
        extra = {"survivors": len(texts), "reference": index in references}
        work.write_report(FILTER, index, Report(extra=extra))


def run_phases(work: Work, phases: Sequence[Phase]) -> None:
    """Run all tasks of all phases, here."""
    for phase in phases:
        (work.folder / phase.name).mkdir(parents=True, exist_ok=True)
        for task in phase.plan(work):
            work.write_report(phase.name, task.index, phase.run(task, work))


def texts_left(work: Work, settings: DedupSettings, task: int) -> tuple[list[str], dict[str, int]]:
    """(what is left of the survivors of a filter task, bytes removed by reason)."""
    found, first = cuts(work, settings, task), 0
    texts: list[str] = []
    removed: dict[str, int] = dict.fromkeys(found.reasons, 0)
    for batch in read_survivors(work, task):
        text, lost = apply_cuts(text_buffers(batch), found.of(np.arange(first, first + len(batch))))
        first += len(batch)
        bounds = text.offsets.tolist()
        texts += [bytes(text.data[a:b]).decode() for a, b in pairwise(bounds)]
        for reason, num_bytes in lost.items():
            removed[reason] += int(num_bytes.sum())
    return texts, removed


def cut_documents(
    folder: Path, tasks: Sequence[Sequence[str]], settings: DedupSettings, references: Sequence[int] = ()
) -> list[list[str]]:
    """The texts of each task that is not of `against`, without what is cut; that bytes add up is asserted."""
    work = Work(folder)
    write_survivors(work, tasks, references)
    run_phases(work, cut_phases(settings))
    left: list[list[str]] = []
    for index, texts in enumerate(tasks):
        if index not in references:
            remaining, removed = texts_left(work, settings, index)
            assert num_bytes(texts) == num_bytes(remaining) + sum(removed.values())
            left.append(remaining)
    return left


def num_bytes(texts: Sequence[str]) -> int:
    return sum(len(text.encode()) for text in texts)


@dataclass(frozen=True)
class CutStage(DedupStage):
    """JSON Lines in; out what is left of documents that are no duplicates, a JSON array a file."""

    name: ClassVar[str] = "cut"

    def phases(self) -> Sequence[Phase]:
        phases = (
            Phase("filter", self.plan_filter, self.run_filter),
            *dedup_phases(self.config.dedup),
            *cut_phases(self.config.dedup),
            Phase("write", self.plan_write, self.run_write),
        )
        return [Phase(phase.name, phase.plan, Probed(phase.name, phase.run)) for phase in phases]

    def run_write(self, task: Task, work: Work) -> Report:
        texts, removed = texts_left(work, self.config.dedup, task.index)
        goes = set(duplicates(work, self.config.dedup, task.index).indices.tolist())
        account = Account()
        for reason, lost in removed.items():
            account.drop(reason, 0, lost)
        for index in goes:
            account.drop("duplicate", 1, num_bytes(texts[index : index + 1]))
        kept = [text for index, text in enumerate(texts) if index not in goes]
        entry, _ = write_lines(work.path("write", f"kept-{task.index:05d}.jsonl"), kept)
        counts = work.report(FILTER, task.index).counts
        counts = counts.model_copy(update={"documents": len(kept), "bytes": num_bytes(kept)})
        return Report(files=(entry,), counts=counts, ledger=tuple(account.ledger()))


def build_cut(
    folder: Path, files: dict[str, Sequence[Any]], *, out: str = "out", workers: int = 1, **settings: Any
) -> dict[str, bytes]:
    """Write `files`, name ─▶ rows or plain texts, run the stage over them, and give the files it publishes."""
    raw = folder / "raw"
    raw.mkdir(exist_ok=True)
    for name, rows in files.items():
        lines = [json.dumps(row if isinstance(row, dict) else {"text": row}) for row in rows]
        (raw / f"{name}.jsonl").write_text("".join(line + "\n" for line in lines))
    stage = CutStage(DedupConfig(folder=str(raw), dedup=DedupSettings(**settings)))
    build_stage(stage, str(folder / out), LocalExecutor(workers))
    return {path.name: path.read_bytes() for path in sorted((folder / out).glob("kept-*"))}
