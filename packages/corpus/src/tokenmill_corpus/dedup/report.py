"""The report of deduplication: `dedup.json` beside the documents."""

from collections import Counter
from typing import Any

import numpy as np

from tokenmill_core.stage import Work
from tokenmill_corpus.dedup.buckets import BUCKETS
from tokenmill_corpus.dedup.components import COMPONENTS
from tokenmill_corpus.dedup.drops import drops_phase
from tokenmill_corpus.dedup.methods import Method, methods
from tokenmill_corpus.dedup.outcome import OUTCOME
from tokenmill_corpus.dedup.settings import DedupSettings
from tokenmill_corpus.survivors import places_of


def dedup_report(work: Work, settings: DedupSettings) -> dict[str, Any]:
    """What was found, as JSON; empty where nothing was looked for.

    `cluster_sizes`: size, the document that stays included ─▶ how many clusters; `largest_clusters`: with the place of
    the document that stays; one entry more for each method.
    """
    wanted = methods(settings)
    if not wanted:
        return {}
    (outcome,) = work.reports(OUTCOME)
    report = {
        "cluster_sizes": outcome.extra["cluster_sizes"],
        "largest_clusters": _places(work, outcome.extra["largest"]),
    }
    return report | {method.value: _METHODS.get(method, _equal)(work, method) for method in wanted}


def _places(work: Work, largest: list[dict[str, int]]) -> list[dict[str, Any]]:
    if not largest:
        return []
    tasks, indices = (np.array([cluster[name] for cluster in largest]) for name in ("task", "index"))
    places = places_of(work, tasks, indices).to_pylist()
    return [{"documents": cluster["documents"], "kept": place} for cluster, place in zip(largest, places, strict=True)]


def _total(work: Work, phase: str) -> Counter[str]:
    """The numbers that the tasks of a phase reported, added up."""
    total: Counter[str] = Counter()
    for report in work.reports(phase):
        total.update({name: value for name, value in report.extra.items() if isinstance(value, int | float)})
    return total


def _equal(work: Work, method: Method) -> dict[str, Any]:
    return {"dropped": _total(work, drops_phase(method))["dropped"]}


def _bloom(work: Work, method: Method) -> dict[str, Any]:
    total = _total(work, drops_phase(method))
    stayed = max(1, total["keys"] - total["dropped"])
    expected = total["expected_false_positives"]
    return {
        "dropped": total["dropped"],
        "expected_false_positives": expected,
        "expected_false_positive_rate": expected / stayed,
    }


def _near(work: Work, method: Method) -> dict[str, Any]:
    buckets, total = work.reports(BUCKETS), _total(work, drops_phase(method))
    (components,) = work.reports(COMPONENTS)
    return {
        "buckets": sum(report.extra["buckets"] for report in buckets),
        "largest_bucket": max(report.extra["largest"] for report in buckets),
        "candidate_components": components.extra["components"],
        "largest_candidate_component": components.extra["largest_component"],
        "pairs_compared": total["compared"],
        "buckets_with_more_leaders_than_compared": total["capped_buckets"],
        "components_taken_apart": sorted(
            (size for report in work.reports(drops_phase(method)) for size in report.extra["taken_apart"]), reverse=True
        ),
        "dropped": total["dropped"],
    }


_METHODS = {Method.BLOOM: _bloom, Method.NEAR: _near}
