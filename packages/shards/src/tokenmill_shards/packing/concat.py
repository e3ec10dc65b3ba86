"""`concat`: sequence i is sample i of the mixture, the same tokens in the same order."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tokenmill_shards.mixture import Located
from tokenmill_shards.packing.pieces import Pieces, join, ramps
from tokenmill_shards.reading.stream import TokenStream


def concat_pieces(streams: Sequence[TokenStream], located: Located, sequence_length: int) -> Pieces:
    """The pieces of documents in samples that lie where `located` says: sequence b is the b-th of them."""
    parts: list[Pieces] = []
    for source in np.unique(located.source).tolist():
        rows = np.flatnonzero(located.source == source)
        rows = rows[np.argsort(located.window[rows])]  # shard by shard, and each from its start to its end
        starts = located.window[rows] * sequence_length
        for part in _of_windows(streams[source], starts, sequence_length + 1):
            sequence = rows[part.sequence]
            source_of = np.full(sequence.size, source, np.int64)
            parts.append(part._replace(sequence=sequence, source=source_of, epoch=located.epoch[sequence]))
    pieces = join(parts)
    return pieces.take(np.argsort(pieces.sequence, kind="stable"))


def _of_windows(stream: TokenStream, starts: NDArray[np.int64], width: int) -> Iterator[Pieces]:
    """For each shard, the documents' pieces in windows of `width` tokens from `starts`, which rise.

    `sequence` counts the windows; sources and epochs are for the caller to fill in.
    """
    begins, ends = stream.shard_offsets[:-1], stream.shard_offsets[1:]
    lows, highs = np.searchsorted(starts, begins - width, "right"), np.searchsorted(starts, ends)
    for shard in np.flatnonzero((highs > lows) & (ends > begins)).tolist():
        documents, low = stream.documents(shard), int(lows[shard])
        offsets = documents.offsets
        first = np.maximum(starts[low : highs[shard]] - begins[shard], 0)
        last = np.minimum(starts[low : highs[shard]] - begins[shard] + width, offsets[-1])
        document_from = np.searchsorted(offsets, first, "right") - 1
        window, number = ramps(np.searchsorted(offsets, last) - document_from)
        number += document_from[window]
        begin = np.maximum(offsets[number], first[window])
        first_token = begin - offsets[number]
        nothing = np.zeros(window.size, np.int64)
        yield Pieces(
            sequence=low + window,
            source=nothing,
            epoch=nothing,
            shard=nothing + shard,
            document=documents.numbers[number],
            first_token=first_token,
            num_tokens=np.minimum(offsets[number + 1], last[window]) - begin,
            document_tokens=offsets[number + 1] - offsets[number],
            physical=documents.physical[number] + first_token,
        )
