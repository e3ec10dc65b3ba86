"""Exact substring deduplication, as of Lee et al. 2022: whatever `min_bytes` bytes stand earlier in the corpus are cut.

    anchors of all windows ─▶ those that occur twice ─▶ fingerprints of their windows ─▶ which came first ─▶ cuts

A window is a run of `min_bytes` bytes inside a document. It goes if the first window with its bytes, in the order of
the data, ends before it begins; what is cut is all that such windows cover. A suffix array over the whole corpus finds
the same, and needs it all in memory; here equal windows meet on disk, because they have equal anchors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tokenmill_core.stage import Phase, Report, Task, Work
from tokenmill_corpus.dedup.cut_pass import CutPass
from tokenmill_corpus.dedup.cuts import Cuts
from tokenmill_corpus.dedup.repeats import OccurrencesWriter, Search
from tokenmill_corpus.dedup.windows import anchors_of, covered, pieces_of, windows_of


@dataclass(frozen=True)
class SubstringPass(CutPass):
    """Runs of bytes. Places are bytes, counted along what is left of a filter task's documents."""

    name: ClassVar[str] = "substring"
    reason: ClassVar[str] = "repeated_substring"

    @property
    def min_bytes(self) -> int:
        """Length of a window."""
        return self.settings.substring.min_bytes

    @property
    def anchors(self) -> Search:
        """The search for anchors that occur more than once."""
        return Search("substring-repeated-anchors", "substring-anchors", self.settings.memory_bytes, spares_first=False)

    @property
    def windows(self) -> Search:
        """The search for windows that occur before, among those with repeated anchors."""
        return Search("substring-repeats", "substring-windows", self.settings.memory_bytes, distance=self.min_bytes)

    def phases(self) -> Sequence[Phase]:
        """Anchors, windows, cuts."""
        return (
            Phase(self.anchors.parts, self.plan_reading, self.run_anchors),
            Phase(self.anchors.name, self.anchors.plan, self.anchors.run),
            Phase(self.windows.parts, self.plan_reading, self.run_windows),
            Phase(self.windows.name, self.windows.plan, self.windows.run),
            self.cuts_phase(),
        )

    def run_anchors(self, task: Task, work: Work) -> Report:
        """Write the anchors of a filter task."""
        writer = OccurrencesWriter(work, self.anchors.parts, task.index, self.settings.memory_bytes)
        place = 0
        for _, text in self.read(work, task.index):
            for start, offsets in pieces_of(text.offsets, self.min_bytes):
                # An anchor that two pieces share is written twice: its windows are looked at in vain, no more.
                keys, places = anchors_of(text.data, offsets, self.min_bytes)
                writer.add(keys, np.zeros_like(keys), place + start + places)
            place += int(text.num_bytes.sum())
        return writer.report(place)

    def run_windows(self, task: Task, work: Work) -> Report:
        """Write the fingerprints of the windows with repeated anchors."""
        writer = OccurrencesWriter(work, self.windows.parts, task.index, self.settings.memory_bytes)
        repeated, place = self.anchors.repeated(work, task.index), 0
        for _, text in self.read(work, task.index):
            for start, offsets in pieces_of(text.offsets, self.min_bytes):
                keys, checks, places = windows_of(text.data, offsets, self.min_bytes, repeated[place + start :])
                writer.add(keys, checks, place + start + places)
            place += int(text.num_bytes.sum())
        return writer.report(place)

    def find_cuts(self, work: Work, task: int) -> Cuts:
        """What repeated windows cover, without parts of characters at its ends."""
        repeated, place = self.windows.repeated(work, task), 0
        found = []
        for documents, text in self.read(work, task):
            document, start, end = covered(text.data, text.offsets, self.min_bytes, repeated[place:])
            found.append(Cuts.union(documents[document], start, end, self.reason))
            place += int(text.num_bytes.sum())
        return Cuts.concatenate(found, self.reason)
