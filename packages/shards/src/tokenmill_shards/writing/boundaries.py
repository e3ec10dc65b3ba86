"""Tokens that open and close documents: which they are, and putting them between the documents of a batch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenmill_tokenizer.open import load


@dataclass(frozen=True)
class Boundaries:
    """The ids around every document; none where there is no such token."""

    begin_id: int | None
    end_id: int | None
    unmistakable: frozenset[int] = frozenset()
    """Those of the two that no text encodes to: as often as they stand in a shard, so many documents it has."""

    @property
    def ids(self) -> list[int]:
        """Those that there are: the same one twice where one token does both."""
        return [id for id in (self.begin_id, self.end_id) if id is not None]

    def surround(self, ids: NDArray[Any], lengths: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """(ids, lengths) of the same documents with their boundaries."""
        return surround(ids, lengths, self.begin_id, self.end_id), lengths + len(self.ids)

    def surround_mask(self, mask: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The loss mask of these documents with their boundaries; `lengths`, without them, are above 0.

        What opens a document never counts, what closes it counts where the last token of its text does.
        """
        begin = None if self.begin_id is None else 0
        end = None if self.end_id is None else mask[np.cumsum(lengths) - 1]
        return surround(mask, lengths, begin, end)


def surround(
    values: NDArray[Any], lengths: NDArray[np.int64], begin: ArrayLike | None, end: ArrayLike | None
) -> NDArray[Any]:
    """`values` of documents of `lengths`, with `begin` before and `end` after those of each document.

    Each of the two is one value for all documents, an array of one a document, or none.
    """
    both = [place is not None for place in (begin, end)]
    if not any(both):
        return values
    stops = np.cumsum(lengths + sum(both))
    starts = stops - lengths - sum(both)
    surrounded = np.empty(values.size + sum(both) * lengths.size, values.dtype)
    inside = np.ones(surrounded.size, np.bool_)
    for value, places in ((begin, starts), (end, stops - 1)):
        if value is not None:
            surrounded[places] = value
            inside[places] = False
    surrounded[inside] = values
    return surrounded


def special_ids(url: str) -> frozenset[int]:
    """Ids of the special tokens of the `tokenizer.json` at `url`: text never becomes one unless that is allowed."""
    return frozenset(id for id, token in load(url).get_added_tokens_decoder().items() if token.special)
