"""Spans of text to be taken out of documents, why, and taking them out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numba
import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_corpus.dedup.keys import map_array, save_array


@dataclass(frozen=True)
class Cuts:
    """Bytes `start[i]` to `end[i]` of document `document[i]` go: in order, none empty, none over another."""

    document: NDArray[np.int64]
    start: NDArray[np.int64]
    """Counted from the document's first byte, and as `end` at the border of a character."""
    end: NDArray[np.int64]
    reason: NDArray[np.int64]
    """Index into `reasons`."""
    reasons: tuple[str, ...]

    @classmethod
    def none(cls) -> Self:
        """No cuts."""
        nothing = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing, nothing, ())

    @classmethod
    def union(cls, document: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64], reason: str) -> Self:
        """Cuts for one reason that cover the given spans, which may come in any order and overlap."""
        order = np.lexsort((start, document))
        document, start, end = _joined(document[order], start[order], end[order])
        return cls(document, start, end, np.zeros(len(start), np.int64), (reason,))

    @classmethod
    def concatenate(cls, parts: Sequence[Self], reason: str) -> Self:
        """The cuts of several groups of documents, ascending, all for one reason."""
        columns = [[part.document, part.start, part.end, part.reason] for part in (*parts, cls.none())]
        document, start, end, reasons = (np.concatenate(column) for column in zip(*columns, strict=True))
        return cls(document, start, end, reasons, (reason,))

    def __len__(self) -> int:
        return len(self.start)

    def of(self, documents: NDArray[np.integer]) -> Self:
        """The cuts of `documents`, ascending; each is known by its place among them from now on."""
        if not len(documents):
            return self._where(np.zeros(len(self), np.bool_))
        place = np.minimum(np.searchsorted(documents, self.document), len(documents) - 1)
        chosen = documents[place] == self.document
        return self._where(chosen, place)

    def then(self, later: Self) -> Self:
        """These cuts and `later` ones, which count bytes of what these left, as cuts of the whole."""
        document, start, end, reason = _combined(
            *(self.document, self.start, self.end, self.reason),
            *(later.document, later.start, later.end, later.reason + len(self.reasons)),
        )
        return type(self)(document, start, end, reason, self.reasons + later.reasons)

    def save(self, path: Path) -> None:
        """Keep the cuts for another phase, which knows the reasons."""
        save_array(path, np.stack([self.document, self.start, self.end, self.reason]))

    @classmethod
    def load(cls, path: Path, reasons: tuple[str, ...]) -> Self:
        """What `save` kept."""
        document, start, end, reason = map_array(path)
        return cls(document, start, end, reason, reasons)

    def _where(self, chosen: NDArray[np.bool_], document: NDArray[np.int64] | None = None) -> Self:
        document = self.document if document is None else document
        return type(self)(document[chosen], self.start[chosen], self.end[chosen], self.reason[chosen], self.reasons)


def apply_cuts(text: TextBuffers, cuts: Cuts) -> tuple[TextBuffers, dict[str, NDArray[np.int64]]]:
    """`text` without what is cut, and for each reason the bytes that each document lost to it."""
    num_documents = len(text)
    num_bytes = cuts.end - cuts.start
    removed = np.zeros((len(cuts.reasons), num_documents), np.int64)
    np.add.at(removed, (cuts.reason, cuts.document), num_bytes)
    offsets = np.zeros(num_documents + 1, np.int64)
    np.cumsum(text.num_bytes - removed.sum(axis=0), out=offsets[1:])
    kept = np.empty(offsets[-1], np.uint8)
    _copy_kept(text.data, text.offsets, cuts.document, cuts.start, cuts.end, kept)
    return TextBuffers(kept, offsets), dict(zip(cuts.reasons, removed, strict=True))


@numba.njit(cache=True)
def _copy_kept(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    document: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    kept: NDArray[np.uint8],
) -> None:
    filled, copied = 0, offsets[0]
    for cut in range(len(document) + 1):
        # What lies before a document's first cut ends at that cut, whichever documents it spans.
        stop = offsets[document[cut]] + start[cut] if cut < len(document) else offsets[-1]
        kept[filled : filled + stop - copied] = data[copied:stop]
        filled += stop - copied
        copied = offsets[document[cut]] + end[cut] if cut < len(document) else stop


@numba.njit(cache=True)
def _joined(
    document: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Sorted spans with those that overlap or touch joined, and empty ones left out."""
    out_document, out_start, out_end = np.empty_like(document), np.empty_like(start), np.empty_like(end)
    n = 0
    for i in range(len(document)):
        if start[i] >= end[i]:
            continue
        if n and out_document[n - 1] == document[i] and start[i] <= out_end[n - 1]:
            out_end[n - 1] = max(out_end[n - 1], end[i])
            continue
        out_document[n], out_start[n], out_end[n] = document[i], start[i], end[i]
        n += 1
    return out_document[:n].copy(), out_start[:n].copy(), out_end[:n].copy()


@numba.njit(cache=True)
def _combined(
    document: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    reason: NDArray[np.int64],
    later_document: NDArray[np.int64],
    later_start: NDArray[np.int64],
    later_end: NDArray[np.int64],
    later_reason: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Rows document, start, end, reason. A later cut that spans earlier ones is taken apart around them."""
    out, n = np.empty((4, 2 * len(start) + len(later_start)), np.int64), 0
    cut, removed = 0, 0
    for i in range(len(later_start) + 1):
        d = later_document[i] if i < len(later_start) else -1
        if i and later_document[i - 1] != d:
            removed = 0
        # Earlier cuts up to where the later one starts; after the last one, all that are left.
        while cut < len(start) and (document[cut] != d or start[cut] - removed <= later_start[i]):
            if d >= 0 and document[cut] > d:
                break
            n = _put(out, n, document[cut], start[cut], end[cut], reason[cut])
            removed += (end[cut] - start[cut]) * (document[cut] == d)
            cut += 1
        if d < 0:
            break
        first = later_start[i] + removed
        while cut < len(start) and document[cut] == d and start[cut] - removed < later_end[i]:
            n = _put(out, n, d, first, start[cut], later_reason[i])
            n = _put(out, n, d, start[cut], end[cut], reason[cut])
            removed += end[cut] - start[cut]
            first = end[cut]
            cut += 1
        n = _put(out, n, d, first, later_end[i] + removed, later_reason[i])
    return out[:, :n].copy()


@numba.njit(cache=True)
def _put(out: NDArray[np.int64], n: int, document: int, start: int, end: int, reason: int) -> int:
    """Write column `n` unless it is empty, and give the next."""
    out[0, n], out[1, n], out[2, n], out[3, n] = document, start, end, reason
    return n + (start < end)
