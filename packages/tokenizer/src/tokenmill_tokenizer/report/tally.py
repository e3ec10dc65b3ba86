"""Counting ids: compiled, one step an id, so that a report costs little more than encoding."""

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_tokenizer.report.vocabulary import Vocabulary

TOKENS, SINGLE_BYTES, PARTIAL, FAILURES = range(4)
"""Columns of `Tally.sums`."""


class Tally:
    """How often the text of one source uses each token, and what its groups come to.

    counts (ids): occurrences of each id. documents (ids): documents that hold it.
    sums (groups, 4): tokens, those of one byte, those with a part of a character, documents that do not come back.
    used (groups, ids): whether the group has the id.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        size = len(vocabulary.tokens)
        self.counts, self.documents = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.sums, self.used = np.zeros((0, 4), np.int64), np.zeros((0, size), np.bool_)
        self._last_document = np.full(size, -1, np.int64)
        self.num_documents = 0
        self._single_byte, self._partial = vocabulary.num_bytes == 1, vocabulary.partial

    def add(
        self,
        ids: NDArray[np.uint32],
        lengths: NDArray[np.int64],
        groups: NDArray[np.int64],
        fails: NDArray[np.bool_],
    ) -> None:
        """Count the ids of some documents: how many each has, its group, and whether it does not come back."""
        assert not len(ids) or ids.max() < len(self.counts)
        more = max(0, int(groups.max(initial=-1)) + 1 - len(self.sums))
        self.sums = np.pad(self.sums, ((0, more), (0, 0)))
        self.used = np.pad(self.used, ((0, more), (0, 0))) if more else self.used
        self.sums[:, TOKENS] += np.bincount(groups, lengths, minlength=len(self.sums)).astype(np.int64)
        self.sums[:, FAILURES] += np.bincount(groups[fails], minlength=len(self.sums))
        _count(
            ids,
            lengths,
            groups,
            self.num_documents,
            self._single_byte,
            self._partial,
            self.counts,
            self.documents,
            self._last_document,
            self.sums,
            self.used,
        )
        self.num_documents += len(lengths)


@numba.njit(cache=True)
def _count(
    ids: NDArray[np.uint32],
    lengths: NDArray[np.int64],
    groups: NDArray[np.int64],
    num_before: int,
    single_byte: NDArray[np.bool_],
    partial: NDArray[np.bool_],
    counts: NDArray[np.int64],
    documents: NDArray[np.int64],
    last_document: NDArray[np.int64],
    sums: NDArray[np.int64],
    used: NDArray[np.bool_],
) -> None:
    start = 0
    for d in range(len(lengths)):
        group, document = groups[d], num_before + d
        for token in ids[start : start + lengths[d]]:
            counts[token] += 1
            if last_document[token] != document:
                last_document[token] = document
                documents[token] += 1
                used[group, token] = True
            sums[group, SINGLE_BYTES] += single_byte[token]
            sums[group, PARTIAL] += partial[token]
        start += lengths[d]


def differs(
    ids: NDArray[np.uint32], lengths: NDArray[np.int64], tokens: TextBuffers, text: TextBuffers
) -> NDArray[np.bool_]:
    """Which documents are not the bytes of their ids one after the other."""
    return _differs(ids, lengths, tokens.data, tokens.offsets, text.data, np.ascontiguousarray(text.offsets))


@numba.njit(cache=True)
def _differs(
    ids: NDArray[np.uint32],
    lengths: NDArray[np.int64],
    token_data: NDArray[np.uint8],
    token_offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
) -> NDArray[np.bool_]:
    result = np.zeros(len(lengths), np.bool_)
    start = 0
    for d in range(len(lengths)):
        i, end, same = offsets[d], offsets[d + 1], True
        for token in ids[start : start + lengths[d]]:
            first, last = token_offsets[token], token_offsets[token + 1]
            if i + last - first > end:
                same = False
                break
            for k in range(last - first):
                same &= data[i + k] == token_data[first + k]
            i += last - first
        result[d] = not (same and i == end)
        start += lengths[d]
    return result
