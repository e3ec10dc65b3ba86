"""Which of the candidates go, and which stay in their place. Documents are numbered from the best to the worst.

pair: from the best on, a document goes if it is a near-duplicate of one that stays, and else stays itself. So each that
    goes was compared with the one named in its place, and no two of those compared that stay are near-duplicates.
component: documents are linked by near-duplicates, and of each component the best stays: a document may go in favour of
    one that it is no near-duplicate of. Components of more than `max_cluster` are taken apart by the rule `pair`.

A document is compared with the leaders of its buckets: by `pair` the documents that stay, by `component` those that are
not in its component yet; at most the first `max_leaders` of a bucket. So the work grows with the number of documents,
and not with the square of it, even where all are in one bucket.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_corpus.dedup.components import find, flatten, unite
from tokenmill_corpus.dedup.sets import ShingleSets, as_table, jaccard
from tokenmill_corpus.dedup.settings import ClusterRule, MinHash


class Incidence(NamedTuple):
    """The buckets of document i are `buckets[starts[i]:starts[i + 1]]`, numbers below `len(sizes)`."""

    buckets: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    """Documents of each bucket."""

    @classmethod
    def of(cls, documents: NDArray[np.int64], buckets: NDArray[np.uint64], num_documents: int) -> "Incidence":
        """From pairs of a document, below `num_documents`, and the name of a bucket."""
        _, bucket, sizes = np.unique(buckets, return_inverse=True, return_counts=True)
        starts = np.searchsorted(np.sort(documents), np.arange(num_documents + 1))
        return cls(bucket[np.lexsort((bucket, documents))].astype(np.int64), starts.astype(np.int64), sizes)


@dataclass(frozen=True)
class Clusters:
    """What became of each document."""

    kept: NDArray[np.int64]
    """The document that stays in its place: itself if it stays."""
    similarity: NDArray[np.float64]
    """Jaccard similarity with that one, or NaN where nobody looked."""
    num_compared: int
    """Pairs that were compared, or taken for near-duplicates without."""
    num_capped: int
    """Buckets with more leaders than were compared with."""
    taken_apart: list[int]
    """Sizes of the components that were larger than `max_cluster`."""


class _Leaders(NamedTuple):
    """The documents of each bucket that later ones are compared with: the first `num[b]` from `start[b]` on."""

    start: NDArray[np.int64]
    room: NDArray[np.int64]
    num: NDArray[np.int64]
    documents: NDArray[np.int64]
    is_capped: NDArray[np.bool_]
    """Whether a bucket has more of them than there was room for."""

    @classmethod
    def none(cls, incidence: Incidence, max_leaders: int) -> "_Leaders":
        room = np.minimum(incidence.sizes, max_leaders)
        documents, is_capped = np.empty(room.sum(), np.int64), np.zeros(len(room), np.bool_)
        return cls(np.cumsum(room) - room, room, np.zeros_like(room), documents, is_capped)


def cluster(settings: MinHash, incidence: Incidence, sets: ShingleSets | None, num_references: int) -> Clusters:
    """Find near-duplicates among documents that share buckets, by their `sets` or, without, by sharing one at all.

    The first `num_references` documents stay, whatever they are near-duplicates of.
    """
    num_documents = len(incidence.starts) - 1
    finder = _Finder(settings, incidence, sets, num_references)
    if settings.cluster_rule is ClusterRule.PAIR:
        finder.find(np.ones(num_documents, np.bool_), by_component=False)
        return finder.clusters([])
    finder.find(np.ones(num_documents, np.bool_), by_component=True)
    flatten(finder.kept)
    sizes = np.bincount(finder.kept, minlength=num_documents)
    too_large = sizes[finder.kept] > settings.max_cluster
    finder.kept[too_large] = np.flatnonzero(too_large)
    finder.find(too_large, by_component=False)
    finder.compare_with_kept()
    return finder.clusters(sizes[sizes > settings.max_cluster].tolist())


class _Finder:
    """What is known so far of a group's documents."""

    def __init__(self, settings: MinHash, incidence: Incidence, sets: ShingleSets | None, num_references: int) -> None:
        self.settings, self.incidence, self.sets, self.num_references = settings, incidence, sets, num_references
        self.kept = np.arange(len(incidence.starts) - 1)
        self.similarity = np.full(len(self.kept), np.nan)
        self.num_compared = self.num_capped = 0

    def find(self, wanted: NDArray[np.bool_], *, by_component: bool) -> None:
        """Find the near-duplicates among the documents that are `wanted`."""
        leaders = _Leaders.none(self.incidence, self.settings.max_leaders)
        self.num_compared += _find_near_duplicates(
            wanted,
            by_component,
            self.num_references,
            self._sets,
            self.settings.min_jaccard,
            self.sets is not None,
            self.incidence,
            leaders,
            np.empty(len(self.kept), np.int64),
            np.full(len(self.kept), -1),
            self.kept,
            self.similarity,
        )
        self.num_capped += int(leaders.is_capped.sum())

    @property
    def _sets(self) -> ShingleSets:
        nothing = np.zeros(len(self.kept), np.int64)
        return self.sets or ShingleSets(np.zeros(0, np.uint64), nothing, nothing)

    def compare_with_kept(self) -> None:
        """Find the similarity of each document that goes with the one that stays in its place."""
        if self.sets is not None:
            _compare_with_kept(self.sets, self.kept, self.similarity)

    def clusters(self, taken_apart: list[int]) -> Clusters:
        """All that was found."""
        return Clusters(self.kept, self.similarity, self.num_compared, self.num_capped, taken_apart)


@numba.njit(cache=True)
def _find_near_duplicates(
    wanted: NDArray[np.bool_],
    by_component: bool,
    num_references: int,
    sets: ShingleSets,
    min_jaccard: float,
    verify: bool,
    incidence: Incidence,
    leaders: _Leaders,
    candidates: NDArray[np.int64],
    asked_by: NDArray[np.int64],
    kept: NDArray[np.int64],
    similarity: NDArray[np.float64],
) -> int:
    """Fill in `kept` and `similarity` of the documents that are `wanted`, and give the number of pairs compared."""
    num_compared = 0
    for document in range(len(kept)):
        if not wanted[document]:
            continue
        buckets = incidence.buckets[incidence.starts[document] : incidence.starts[document + 1]]
        if document >= num_references:
            count = _gather(document, buckets, leaders, candidates, asked_by)
            num_compared += _compare(
                document, candidates[:count], by_component, sets, min_jaccard, verify, kept, similarity
            )
        if by_component or kept[document] == document:
            _lead(document, buckets, leaders)
    return num_compared


@numba.njit(cache=True)
def _gather(
    document: int,
    buckets: NDArray[np.int64],
    leaders: _Leaders,
    candidates: NDArray[np.int64],
    asked_by: NDArray[np.int64],
) -> int:
    """Put every leader of `buckets` into `candidates` once, and give their number."""
    count = 0
    for bucket in buckets:
        start = leaders.start[bucket]
        for leader in leaders.documents[start : start + leaders.num[bucket]]:
            if asked_by[leader] != document:
                asked_by[leader] = document
                candidates[count] = leader
                count += 1
    return count


@numba.njit(cache=True)
def _lead(document: int, buckets: NDArray[np.int64], leaders: _Leaders) -> None:
    """Make `document` a leader of its buckets."""
    for bucket in buckets:
        if leaders.num[bucket] < leaders.room[bucket]:
            leaders.documents[leaders.start[bucket] + leaders.num[bucket]] = document
            leaders.num[bucket] += 1
        else:
            leaders.is_capped[bucket] = True


@numba.njit(cache=True)
def _compare(
    document: int,
    candidates: NDArray[np.int64],
    by_component: bool,
    sets: ShingleSets,
    min_jaccard: float,
    verify: bool,
    kept: NDArray[np.int64],
    similarity: NDArray[np.float64],
) -> int:
    """Find the best of `candidates`, or by component each of them, that `document` is a near-duplicate of."""
    own = sets.hashes[sets.first[document] : sets.last[document]]
    table = as_table(own if len(candidates) else own[:0])
    num_compared = 0
    for left in range(len(candidates), 0, -1):
        candidate = _take_least(candidates[:left])
        if by_component and find(kept, candidate) == find(kept, document):
            continue
        num_compared += 1
        found = np.nan
        if verify:
            others = sets.hashes[sets.first[candidate] : sets.last[candidate]]
            found = jaccard(table, len(own), others, min_jaccard)
            if found == 0:
                continue
        if by_component:
            unite(kept, document, candidate)
        else:
            kept[document], similarity[document] = candidate, found
            break
    return num_compared


@numba.njit(cache=True)
def _take_least(numbers: NDArray[np.int64]) -> int:
    """The least of `numbers`; the last one takes its place."""
    place = 0
    for i in range(1, len(numbers)):
        if numbers[i] < numbers[place]:
            place = i
    least: int = numbers[place]
    numbers[place] = numbers[len(numbers) - 1]
    return least


@numba.njit(cache=True)
def _compare_with_kept(sets: ShingleSets, kept: NDArray[np.int64], similarity: NDArray[np.float64]) -> None:
    for document in range(len(kept)):
        if kept[document] != document:
            own = sets.hashes[sets.first[document] : sets.last[document]]
            others = sets.hashes[sets.first[kept[document]] : sets.last[kept[document]]]
            similarity[document] = jaccard(as_table(own), len(own), others, 0.0)
