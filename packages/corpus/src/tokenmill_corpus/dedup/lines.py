"""Lines, or paragraphs, that stand elsewhere in the corpus: all but the first occurrence are cut, as CCNet does.

lines ─▶ fingerprints ─▶ partition by partition, which came first ─▶ cuts
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.stage import Phase, Report, Task, Work
from tokenmill_corpus.character_classes import DIGIT, character_classes
from tokenmill_corpus.dedup.cut_pass import CutPass
from tokenmill_corpus.dedup.cut_settings import Compare, UnitDedup
from tokenmill_corpus.dedup.cuts import Cuts
from tokenmill_corpus.dedup.normal_form import normal_form_table
from tokenmill_corpus.dedup.repeats import OccurrencesWriter, Search
from tokenmill_corpus.dedup.units import cut_units, hash_units


@dataclass(frozen=True)
class LinePass(CutPass):
    """Lines."""

    name: ClassVar[str] = "lines"
    reason: ClassVar[str] = "duplicate_line"
    by_paragraph: ClassVar[bool] = False

    @property
    def unit_settings(self) -> UnitDedup:
        """Those of this pass."""
        return self.settings.lines

    @property
    def search(self) -> Search:
        """The search among all units."""
        return Search(
            f"{self.name}-repeats",
            f"{self.name}-units",
            self.settings.memory_bytes,
            max_copies=self.unit_settings.max_copies,
        )

    def phases(self) -> Sequence[Phase]:
        """Fingerprints, the search, cuts."""
        return (
            Phase(self.search.parts, self.plan_reading, self.run_units),
            Phase(self.search.name, self.search.plan, self.search.run),
            self.cuts_phase(),
        )

    def run_units(self, task: Task, work: Work) -> Report:
        """Write the fingerprints of a filter task's units; their places number them."""
        writer = OccurrencesWriter(work, self.search.parts, task.index, self.settings.memory_bytes)
        exact, num_units = self.unit_settings.compare is Compare.EXACT, 0
        for _, text in self.read(work, task.index):
            keys, checks = hash_units(
                text.data, text.offsets, _table(), self.by_paragraph, exact, self.unit_settings.min_characters
            )
            compared = np.flatnonzero(keys)
            writer.add(keys[compared], checks[compared], num_units + compared)
            num_units += len(keys)
        return writer.report(num_units)

    def find_cuts(self, work: Work, task: int) -> Cuts:
        """The units that are repeats, with their separators."""
        goes, first = self.search.repeated(work, task), 0
        found = []
        for documents, text in self.read(work, task):
            document, start, end, num_units = cut_units(text.data, text.offsets, self.by_paragraph, goes[first:])
            first += num_units
            found.append(Cuts.union(documents[document], start, end, self.reason))
        return Cuts.concatenate(found, self.reason)


@dataclass(frozen=True)
class ParagraphPass(LinePass):
    """Paragraphs: what stands between blank lines."""

    name: ClassVar[str] = "paragraphs"
    reason: ClassVar[str] = "duplicate_paragraph"
    by_paragraph: ClassVar[bool] = True

    @property
    def unit_settings(self) -> UnitDedup:
        """Those of this pass."""
        return self.settings.paragraphs


@functools.cache
def _table() -> NDArray[np.uint32]:
    """The normal form, in which every decimal digit of every script is 0."""
    table = normal_form_table().copy()
    digits = (character_classes() & DIGIT) != 0
    table[digits] = (table[digits] & 0xFF000000) | ord("0")
    return table
