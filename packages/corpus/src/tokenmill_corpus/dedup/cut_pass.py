"""Passes that cut repeated parts out of documents, one after the other: each sees what the ones before it left.

documents that stay ─▶ without the cuts of earlier passes ─▶ parts, searched for repeats ─▶ cuts of a filter task
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers, text_buffers
from tokenmill_core.stage import Phase, Report, Task, Work
from tokenmill_corpus.dedup.cuts import Cuts, apply_cuts
from tokenmill_corpus.dedup.outcome import duplicates
from tokenmill_corpus.dedup.settings import DedupSettings
from tokenmill_corpus.survivors import FILTER, read_survivors


@dataclass(frozen=True)
class CutPass(ABC):
    """One pass. Its last phase is called `<name>-cuts` and leaves all cuts up to then, its own and earlier ones."""

    name: ClassVar[str]
    reason: ClassVar[str]
    """What the ledger calls it."""

    settings: DedupSettings
    before: "CutPass | None"

    @abstractmethod
    def phases(self) -> Sequence[Phase]:
        """The pass as phases, the last one `cuts_phase`."""

    @abstractmethod
    def find_cuts(self, work: Work, task: int) -> Cuts:
        """What this pass cuts out of what the passes before it left of a filter task."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons of all cuts up to this pass."""
        return (*(self.before.reasons if self.before else ()), self.reason)

    def cuts(self, work: Work, task: int) -> Cuts:
        """All cuts up to this pass, once its phases are done."""
        return Cuts.load(self._cuts_path(work, task), self.reasons)

    def cuts_phase(self) -> Phase:
        """Writes the cuts of each filter task, those of `against` left out."""
        return Phase(f"{self.name}-cuts", self._plan_cuts, self._run_cuts)

    def plan_reading(self, work: Work) -> Sequence[Task]:
        """A task for each filter task."""
        return [
            Task(index=index, payload={}, weight=max(report.counts.input_bytes, 1))
            for index, report in enumerate(work.reports(FILTER))
        ]

    def read(self, work: Work, task: int) -> Iterator[tuple[NDArray[np.int64], TextBuffers]]:
        """(which documents of the filter task, what is left of their texts), batch by batch, in order."""
        kept, first = _kept(work, self.settings, task), 0
        before = self._cuts_before(work, task)
        for batch in read_survivors(work, task):
            stays = kept[first : first + len(batch)]
            documents = first + np.flatnonzero(stays)
            first += len(batch)
            text = text_buffers(batch if stays.all() else batch.filter(pa.array(stays)))
            yield documents, apply_cuts(text, before.of(documents))[0] if len(before) else text

    def _cuts_before(self, work: Work, task: int) -> Cuts:
        if self.before is None or work.report(FILTER, task).extra["reference"]:
            return Cuts.none()
        return self.before.cuts(work, task)

    def _cuts_path(self, work: Work, task: int) -> Path:
        return work.path(f"{self.name}-cuts", f"{task:06d}.npy")

    def _plan_cuts(self, work: Work) -> Sequence[Task]:
        references = [report.extra["reference"] for report in work.reports(FILTER)]
        return [task for task in self.plan_reading(work) if not references[task.index]]

    def _run_cuts(self, task: Task, work: Work) -> Report:
        before = self._cuts_before(work, task.index)
        cuts = before.then(self.find_cuts(work, task.index))
        cuts.save(self._cuts_path(work, task.index))
        return Report()


def _kept(work: Work, settings: DedupSettings, task: int) -> NDArray[np.bool_]:
    """Which survivors of a filter task are no duplicates of other documents."""
    extra = work.report(FILTER, task).extra
    kept = np.ones(extra["survivors"], np.bool_)
    if not extra["reference"]:
        kept[duplicates(work, settings, task).indices] = False
    return kept
