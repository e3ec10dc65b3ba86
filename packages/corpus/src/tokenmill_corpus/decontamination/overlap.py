"""How much of which items the documents of a batch hold."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenmill_corpus.decontamination.hits import Hits
from tokenmill_corpus.decontamination.index import Index
from tokenmill_corpus.dedup.keys import starts_of_runs


@dataclass(frozen=True)
class Overlaps:
    """`document[i]` holds the share `value[i]`, above 0, of the distinct n-grams of `item[i]`."""

    document: NDArray[np.int64]
    item: NDArray[np.int64]
    value: NDArray[np.float64]

    def above(self, threshold: float) -> "Overlaps":
        """Those with more than `threshold`."""
        return self._where(self.value > threshold)

    def of_items(self, first: int, last: int) -> "Overlaps":
        """Those with the items `first:last`."""
        return self._where((first <= self.item) & (self.item < last))

    def largest(self, num_documents: int) -> NDArray[np.float64]:
        """The largest value of each document, 0 where it has none."""
        values = np.zeros(num_documents)
        np.maximum.at(values, self.document, self.value)
        return values

    def main_items(self) -> list[tuple[int, int]]:
        """(document, the item it holds the largest share of, of several the first)."""
        order = np.lexsort((self.item, -self.value, self.document))
        document, item = self.document[order], self.item[order]
        first = starts_of_runs(document)
        return list(zip(document[first].tolist(), item[first].tolist(), strict=True))

    def _where(self, chosen: NDArray[np.bool_]) -> "Overlaps":
        return Overlaps(self.document[chosen], self.item[chosen], self.value[chosen])


def measure_overlaps(hits: Hits, index: Index) -> Overlaps:
    """All overlaps, by document and item."""
    order = np.lexsort((hits.ngram, hits.document))
    document, ngram = hits.document[order], hits.ngram[order]
    # However often a document repeats an n-gram, it holds it once.
    first = starts_of_runs(document, ngram)
    which, item = _items_of(ngram[first], index)
    document = document[first][which]
    order = np.lexsort((item, document))
    document, item = document[order], item[order]
    starts = np.flatnonzero(starts_of_runs(document, item))
    num_held = np.diff(np.append(starts, len(item)))
    document, item = document[starts], item[starts]
    return Overlaps(document, item, num_held / index.num_ngrams[item])


def hits_of(hits: Hits, overlaps: Overlaps, index: Index) -> Hits:
    """Those hits that belong to an overlap of `overlaps`."""
    which, item = _items_of(hits.ngram, index)
    num_items = len(index.rows)
    belongs = np.isin(hits.document[which] * num_items + item, overlaps.document * num_items + overlaps.item)
    chosen = np.unique(which[belongs])
    return Hits(hits.document[chosen], hits.word[chosen], hits.length[chosen], hits.ngram[chosen])


def _items_of(ngrams: NDArray[np.int64], index: Index) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Pairs (place in `ngrams`, item that has this n-gram)."""
    first, last = index.first_posting[ngrams], index.first_posting[ngrams + 1]
    counts = last - first
    which = np.repeat(np.arange(len(ngrams)), counts)
    within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    return which, index.postings[first[which] + within]
