"""The family of rules against documents that hold parts of benchmarks.

    documents ─▶ n-grams that a benchmark has ─▶ the share of an item they are ─▶ too large: dropped, or cut out

Words are compared in the normal form of `dedup.normal_form`: in lower case, without punctuation and white space, and in
scripts written without spaces each character is a word. By default one n-gram of 13 words condemns a document, as with
GPT-3 (Brown et al. 2020, appendix C); `ngram = 8` with `max_overlap = 0.5` is close to what Tülu 3 and OLMo 2 do.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from tokenmill_corpus.decontamination.hits import Hits, find_hits
from tokenmill_corpus.decontamination.index import Index, build_index
from tokenmill_corpus.decontamination.items import Benchmark
from tokenmill_corpus.decontamination.overlap import Overlaps, hits_of, measure_overlaps
from tokenmill_corpus.decontamination.report import findings_of, report_of
from tokenmill_corpus.decontamination.spans import cuts_around
from tokenmill_corpus.dedup.cuts import apply_cuts
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Edit, Family, Outcome, at_most


class Action(StrEnum):
    """What is done with a contaminated document."""

    DROP = "drop"
    CUT = "cut"


class Decontamination(Family):
    """A document is contaminated if it holds more than `max_overlap` of an item of a benchmark."""

    edits: ClassVar[bool] = True

    benchmarks: tuple[Benchmark, ...] = ()
    """What documents are compared with."""
    ngram: int = Field(default=13, ge=1, le=1000)
    """Words in an n-gram. A shorter text of an item is one n-gram of all its words."""
    min_words: int = Field(default=8, ge=1)
    """Texts of items with fewer words are not looked for: they would be found anywhere. At most `ngram`."""
    max_items: int = Field(default=100, ge=1, le=2**31 - 1)
    """n-grams that more items have are not looked for: they are a benchmark's way of asking, not its questions."""
    max_overlap: float = Field(default=0.0, ge=0, lt=1)
    """Largest share of an item's distinct n-grams that a document may hold; 0: none at all."""
    action: Action = Action.DROP
    """`drop`: a contaminated document goes; `cut`: the n-grams go, and what surrounds them."""
    margin: int = Field(default=200, ge=0, le=2**31 - 1)
    """Characters cut on either side of an n-gram, and on to the end of a word."""
    max_cuts: int = Field(default=10, ge=0, le=2**31 - 1)
    """Largest number of places at which a document may be cut; with more it is dropped."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min_words > self.ngram:
            raise ValueError(f"min_words: {self.min_words} is more than ngram {self.ngram}; set it to at most that")
        names = [benchmark.name for benchmark in self.benchmarks]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"benchmarks: two are called {twice[0]!r}; give each a name of its own")
        if self.enabled and not self.benchmarks:
            raise ValueError("benchmarks: none is given; name at least one, with its path")
        return self

    def named_files(self) -> dict[str, str]:
        """The benchmarks' files."""
        return {f"benchmarks.{benchmark.name}": benchmark.path for benchmark in self.benchmarks}

    def check(self) -> None:
        """Read the benchmarks, anew: a file may have changed since this process read it last."""
        _index_of.cache_clear()
        _index_of(self)

    def apply(self, documents: Documents) -> Outcome:
        """Drop or cut the contaminated documents of a batch."""
        index = _index_of(self)
        hits = find_hits(documents.text, index)
        overlaps = measure_overlaps(hits, index)
        contaminating = overlaps.above(self.max_overlap)
        findings = findings_of(documents, contaminating, self.benchmarks, index)
        if self.action is Action.CUT:
            return self._cut(documents, hits_of(hits, contaminating, index), findings)
        values = overlaps.largest(len(documents))
        detail = pa.array(self._details(overlaps, len(documents), index), pa.string())
        return Outcome(rules=(at_most("max_overlap", values, self.max_overlap, detail),), findings=findings)

    def _cut(self, documents: Documents, hits: Hits, findings: list[dict[str, Any]]) -> Outcome:
        cuts = cuts_around(documents.text, hits, self.margin)
        num_cuts = np.bincount(cuts.document, minlength=len(documents))
        text, removed = apply_cuts(documents.text, cuts)
        edit = Edit(text=text, removed=removed, count={"cut": num_cuts}) if len(cuts) else None
        return Outcome(rules=(at_most("max_cuts", num_cuts, self.max_cuts),), edit=edit, findings=findings)

    def _details(self, overlaps: Overlaps, num_documents: int, index: Index) -> list[str | None]:
        """The item that each document holds most of, `<benchmark>:<row>`."""
        details: list[str | None] = [None] * num_documents
        for document, item in overlaps.main_items():
            benchmark = int(np.searchsorted(index.bounds, item, side="right")) - 1
            details[document] = f"{self.benchmarks[benchmark].name}:{index.rows[item]}"
        return details

    def report(self, findings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """For each benchmark, its items, those found, and examples of documents that hold them."""
        return report_of(findings, self.benchmarks, _index_of(self))


@lru_cache(maxsize=1)
def _index_of(settings: Decontamination) -> Index:
    """Built once a process: 10^6 n-grams take about a second."""
    return build_index(
        settings.benchmarks, ngram=settings.ngram, min_words=settings.min_words, max_items=settings.max_items
    )
