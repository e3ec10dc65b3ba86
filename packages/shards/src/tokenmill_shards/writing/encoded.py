"""Batches of documents as tokens.

    documents ─▶ with a loss mask: spans ─▶ encode ─▶ boundaries around each document, its hash ─▶ Encoded

Dropped on the way: documents whose loss mask cannot be used (reasons: see `loss_masks`), and those that the tokenizer
gives no token for (`no_tokens`), as one that strips characters does.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokenmill_shards.formats.mmididx import sequence_offsets
from tokenmill_shards.formats.places import HASH, PLACES_SCHEMA
from tokenmill_shards.writing.boundaries import Boundaries
from tokenmill_shards.writing.document_hashes import hash_texts
from tokenmill_shards.writing.loss_masks import LossMasks
from tokenmill_shards.writing.rejections import Rejecter
from tokenmill_tokenizer import Encoder


@dataclass(frozen=True)
class Encoded:
    """Documents and their tokens, boundaries included."""

    documents: pa.RecordBatch
    """With the hash of each document's text in a column of its own."""
    ids: NDArray[Any]
    """Tokens of all documents, one after another."""
    lengths: NDArray[np.int64]
    """Tokens of each document."""
    text_bytes: NDArray[np.int64]
    """Bytes of each document's text."""
    mask: NDArray[np.uint8] | None
    """For each token whether it counts for the loss."""

    def slice(self, start: int, stop: int) -> "Encoded":
        """Documents `start` to `stop`."""
        first, last = self._offsets[start], self._offsets[stop]
        return Encoded(
            self.documents.slice(start, stop - start),
            self.ids[first:last],
            self.lengths[start:stop],
            self.text_bytes[start:stop],
            None if self.mask is None else self.mask[first:last],
        )

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        return sequence_offsets(self.lengths)


@dataclass(frozen=True)
class BatchEncoder:
    """Encodes batches of documents in one way."""

    encoder: Encoder
    boundaries: Boundaries
    masks: LossMasks | None
    reject: Rejecter

    def batches(self, documents: Iterable[pa.RecordBatch]) -> Iterator[Encoded]:
        """The batches of `documents` that have any left, encoded. The encoder proves itself on the first."""
        batches = iter(documents)
        first = next(batches, None)
        if first is None:
            return
        self.encoder.prove_on(first.column("text"))
        for batch in chain([first], batches):
            encoded = self._encode(batch)
            if encoded.lengths.size:
                yield encoded

    def _encode(self, batch: pa.RecordBatch) -> Encoded:
        mask = None
        if self.masks:
            batch, spans = self.masks.spans(batch, self.reject)
        ids, lengths = self.encoder.encode(batch.column("text"))
        if self.masks:
            mask = self.masks.mask(batch.column("text"), ids, lengths, spans)
        batch = self.reject(batch, dict.fromkeys(np.flatnonzero(lengths == 0).tolist(), "no_tokens"))
        lengths = lengths[lengths > 0]
        if mask is not None:
            mask = self.boundaries.surround_mask(mask, lengths)
        text_bytes = pc.binary_length(batch.column("text")).to_numpy(zero_copy_only=False)
        batch = batch.append_column(PLACES_SCHEMA.field(HASH), pa.array(hash_texts(batch.column("text"))))
        return Encoded(batch, *self.boundaries.surround(ids, lengths), text_bytes, mask)
