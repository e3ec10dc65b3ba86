"""The phases of deduplication, between those that filter and write.

    sketches ─▶ exact, normalised | Bloom ─▶ URL ─▶ buckets ─▶ components ─▶ near-duplicates ─▶ duplicates of each task

Each method sees what the ones before left. Partitions and groups follow from the data and `memory_bytes`, a task each;
what is found depends on neither.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tokenmill_core.stage import Phase, Task, Work
from tokenmill_corpus.dedup.bloom import BloomKeys
from tokenmill_corpus.dedup.buckets import BUCKETS, Buckets
from tokenmill_corpus.dedup.components import COMPONENTS, Components
from tokenmill_corpus.dedup.drops import drops_phase
from tokenmill_corpus.dedup.equal import EqualKeys
from tokenmill_corpus.dedup.methods import Method, methods
from tokenmill_corpus.dedup.near import NearDuplicates
from tokenmill_corpus.dedup.order import check_scores
from tokenmill_corpus.dedup.outcome import OUTCOME, Outcome
from tokenmill_corpus.dedup.settings import DedupSettings


def dedup_phases(settings: DedupSettings) -> Sequence[Phase]:
    """What follows a phase `filter` that has written survivors and sketches. None where nothing is looked for."""
    wanted = methods(settings)
    if not wanted:
        return []
    first, *others = [phase for i, method in enumerate(wanted) for phase in _phases(settings, method, wanted[:i])]
    outcome = Outcome(settings)
    first = replace(first, plan=partial(_plan_first, settings, first.plan))
    return [first, *others, Phase(OUTCOME, outcome.plan, outcome.run)]


def _plan_first(settings: DedupSettings, plan: Callable[[Work], Sequence[Task]], work: Work) -> Sequence[Task]:
    """What `plan` says, once all is known that documents are ranked by."""
    check_scores(work, settings)
    return plan(work)


def _phases(settings: DedupSettings, method: Method, earlier: Sequence[Method]) -> list[Phase]:
    name, memory = drops_phase(method), settings.memory_bytes
    if method is Method.NEAR:
        buckets, components = Buckets(method, earlier, memory), Components(memory)
        near = NearDuplicates(settings.minhash)
        return [
            Phase(BUCKETS, buckets.plan, buckets.run),
            Phase(COMPONENTS, components.plan, components.run),
            Phase(name, near.plan, near.run),
        ]
    if method is Method.BLOOM:
        bloom = BloomKeys(method, earlier, memory, settings.bloom)
        return [Phase(name, bloom.plan, bloom.run)]
    equal = EqualKeys(method, earlier, memory)
    return [Phase(name, equal.plan, equal.run)]
