"""Near-duplicates: candidates compared, a group of components a task.

a group's buckets ─▶ its documents, best first ─▶ their shingles, read from the survivors ─▶ clusters ─▶ drops
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill_core.stage import Report, Task, Work
from tokenmill_corpus.dedup.clusters import Incidence, cluster
from tokenmill_corpus.dedup.components import COMPONENTS, candidate_paths
from tokenmill_corpus.dedup.drops import drops_path, save_drops
from tokenmill_corpus.dedup.keys import read_range
from tokenmill_corpus.dedup.methods import Method
from tokenmill_corpus.dedup.order import Order
from tokenmill_corpus.dedup.sets import read_sets
from tokenmill_corpus.dedup.settings import MinHash


@dataclass(frozen=True)
class NearDuplicates:
    """The candidates of each group, compared."""

    settings: MinHash

    def plan(self, work: Work) -> Sequence[Task]:
        """A task a group."""
        (components,) = work.reports(COMPONENTS)
        sizes = components.extra["groups"]
        return [Task(index=index, payload={}, weight=documents) for index, documents in enumerate(sizes)]

    def run(self, task: Task, work: Work) -> Report:
        """Write down which documents of a group go, and which stay in their place."""
        order = Order.of(work)
        found = np.concatenate([read_range(path, task.index, task.index + 1) for path in candidate_paths(work)])
        numbers, member = np.unique(found["document"], return_inverse=True)
        best = order.best_first(work, numbers)
        place = np.empty_like(best)
        place[best] = np.arange(len(best))
        numbers = numbers[best]
        num_references = int(order.of_reference(numbers).sum())
        incidence = Incidence.of(place[member], found["bucket"], len(numbers))
        sets = read_sets(work, order, self.settings, numbers) if self.settings.verify else None
        clusters = cluster(self.settings, incidence, sets, num_references)
        goes = np.flatnonzero(clusters.kept != np.arange(len(numbers)))
        kept = numbers[clusters.kept[goes]]
        save_drops(drops_path(work, Method.NEAR, task.index), numbers[goes], kept, clusters.similarity[goes])
        return Report(
            extra={
                "compared": clusters.num_compared,
                "dropped": int((goes >= num_references).sum()),
                "capped_buckets": clusters.num_capped,
                "taken_apart": clusters.taken_apart,
            }
        )
