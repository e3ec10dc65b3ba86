"""What decontamination found: a record a batch and benchmark, and the report that they come to.

overlaps of a batch ─▶ findings, as JSON ─▶ all batches ─▶ decontamination.json
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tokenmill_corpus.decontamination.index import Index
from tokenmill_corpus.decontamination.items import Benchmark
from tokenmill_corpus.decontamination.overlap import Overlaps
from tokenmill_corpus.documents import Documents

MAX_EXAMPLES = 20
"""Examples of contaminated documents for each benchmark."""


def findings_of(
    documents: Documents, overlaps: Overlaps, benchmarks: Sequence[Benchmark], index: Index
) -> list[dict[str, Any]]:
    """For each benchmark that `overlaps` has items of: documents, items, and the first examples."""
    return [
        {"benchmark": benchmark.name, **_finding(documents, overlaps.of_items(first, last), index)}
        for benchmark, (first, last) in zip(benchmarks, pairwise(index.bounds.tolist()), strict=True)
        if len(overlaps.of_items(first, last).item)
    ]


def _finding(documents: Documents, overlaps: Overlaps, index: Index) -> dict[str, Any]:
    """`items` holds for each item found, by its row: [row, documents, largest overlap]."""
    items, place = np.unique(overlaps.item, return_inverse=True)
    largest = np.zeros(len(items))
    np.maximum.at(largest, place, overlaps.value)
    counts = np.bincount(place)
    return {
        "documents": len(np.unique(overlaps.document)),
        "items": [
            list(item) for item in zip(index.rows[items].tolist(), counts.tolist(), largest.tolist(), strict=True)
        ],
        "examples": [_example(documents, overlaps, i, index) for i in range(min(MAX_EXAMPLES, len(overlaps.item)))],
    }


def _example(documents: Documents, overlaps: Overlaps, i: int, index: Index) -> dict[str, Any]:
    row = int(overlaps.document[i])
    place = {name: documents.batch.column(name)[row].as_py() for name in ("id", "file", "row")}
    return {"item": int(index.rows[overlaps.item[i]]), "overlap": float(overlaps.value[i]), **place}


def report_of(findings: Iterable[Mapping[str, Any]], benchmarks: Sequence[Benchmark], index: Index) -> dict[str, Any]:
    """For each benchmark: what it consists of, and how much of it the documents hold.

    `short_items` and `common_ngrams` were not looked for; `items_found` counts the distinct items of `found`.
    """
    found: dict[str, _Found] = {benchmark.name: _Found() for benchmark in benchmarks}
    for finding in findings:
        found[finding["benchmark"]].add(finding)
    return {
        benchmark.name: {
            "items": last - first,
            "items_not_looked_for": int((index.num_ngrams[first:last] == 0).sum()),
            "common_ngrams": int(index.num_common_ngrams[place]),
            **found[benchmark.name].to_json(),
        }
        for place, (benchmark, (first, last)) in enumerate(
            zip(benchmarks, pairwise(index.bounds.tolist()), strict=True)
        )
    }


class _Found:
    """Findings of one benchmark, added up."""

    def __init__(self) -> None:
        self.documents = 0
        self.items: dict[int, tuple[int, float]] = {}
        self.examples: list[dict[str, Any]] = []

    def add(self, finding: Mapping[str, Any]) -> None:
        self.documents += finding["documents"]
        for row, documents, largest in finding["items"]:
            before = self.items.get(row, (0, 0.0))
            self.items[row] = (before[0] + documents, max(before[1], largest))
        self.examples += finding["examples"][: MAX_EXAMPLES - len(self.examples)]

    def to_json(self) -> dict[str, Any]:
        items = [
            {"item": row, "documents": documents, "largest_overlap": largest}
            for row, (documents, largest) in sorted(self.items.items())
        ]
        return {
            "contaminated_documents": self.documents,
            "items_found": len(items),
            "found": items,
            "examples": self.examples,
        }
