"""What is cut out where a document holds n-grams: these, and a margin around them up to the borders of words."""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_corpus.decontamination.hits import Hits, lower_bound
from tokenmill_corpus.decontamination.ngrams import most_words
from tokenmill_corpus.dedup.cuts import Cuts
from tokenmill_corpus.dedup.normal_form import normal_form_table, word_starts


def cuts_around(text: TextBuffers, hits: Hits, margin: int) -> Cuts:
    """Cuts from the start of one word to that of another, with at least `margin` characters on either side of hits."""
    spans = _spans(text.data, text.offsets, normal_form_table(), hits.document, hits.word, hits.length, margin)
    return Cuts.union(hits.document, spans[0], spans[1], "cut")


@numba.njit(cache=True)
def _spans(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    table: NDArray[np.uint32],
    document: NDArray[np.int64],
    word: NDArray[np.int64],
    length: NDArray[np.int64],
    margin: int,
) -> NDArray[np.int64]:
    spans = np.empty((2, len(document)), np.int64)
    known, starts, count = -1, np.empty(0, np.int64), 0
    characters = np.empty(0, np.int64)
    for i in range(len(document)):
        first, last = offsets[document[i]], offsets[document[i] + 1]
        if document[i] != known:
            known = document[i]
            starts = np.empty(most_words(last - first), np.int64)
            count = word_starts(data, first, last, table, starts)
            starts[count] = last
            characters = first + np.flatnonzero((data[first:last] & 0xC0) != 0x80)
        left, right = starts[word[i]], starts[word[i] + length[i]]
        left = characters[max(lower_bound(characters, left) - margin, 0)]
        after = lower_bound(characters, right) + margin
        right = characters[after] if after < len(characters) else last
        before = lower_bound(starts[: count + 1], left + 1) - 1
        spans[0, i] = (starts[before] if before >= 0 else first) - first
        spans[1, i] = starts[lower_bound(starts[: count + 1], right)] - first
    return spans
