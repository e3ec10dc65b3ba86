"""The tokens of packed sequences: gathered from the shards of all sources in the order they lie there.

Where a source asks for filling in the middle, its documents are then rearranged, sequence by sequence.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_shards.compiled import compiled
from tokenmill_shards.formats.mmididx import sequence_offsets
from tokenmill_shards.packing.pieces import PADDING, Pieces, ramps
from tokenmill_shards.reading.fim import FillInTheMiddle
from tokenmill_shards.reading.stream import TokenStream


class Filled(NamedTuple):
    """S sequences of L + 1 tokens, as they are stored."""

    tokens: NDArray[Any]
    """(S, L + 1)."""
    mask: NDArray[np.uint8] | None
    """(S, L + 1): 1 where a token counts for the loss as the label of the one before; none where all that could do."""


def fill(
    mixture: MixtureManifest, streams: tuple[TokenStream, ...], pieces: Pieces, padding_id: int, first_index: int
) -> Filled:
    """The sequences that `pieces` fill, one after another.

    Sequence s is rearranged, if at all, as sample `first_index` + s is.
    """
    places = sequence_offsets(pieces.num_tokens)
    tokens = np.empty(places[-1], np.dtype(mixture.dtype).newbyteorder("<"))
    mask = np.ones(places[-1], np.uint8) if any(source.loss_mask for source in mixture.sources) else None
    for rows in _groups(pieces.source, pieces.shard, pieces.physical):
        source, shard = int(pieces.source[rows[0]]), int(pieces.shard[rows[0]])
        spans = pieces.physical[rows], places[rows], pieces.num_tokens[rows]
        if source == PADDING:
            tokens[_places(places, pieces, rows)] = padding_id
            continue
        store = streams[source].store
        _copy(store.tokens(shard), tokens, *spans)
        shard_mask = store.mask(shard) if mask is not None else None
        if mask is not None and shard_mask is not None:
            _copy(shard_mask, mask, *spans)
    _rearrange(mixture, pieces, places, tokens, mask, first_index)
    if mask is not None:
        mask[places[:-1][~pieces.first_is_label]] = 0
        mask[_places(places, pieces, np.flatnonzero(pieces.source == PADDING))] = 0
    num_sequences = int(pieces.sequence[-1]) + 1
    return Filled(tokens.reshape(num_sequences, -1), None if mask is None else mask.reshape(num_sequences, -1))


def _rearrange(
    mixture: MixtureManifest,
    pieces: Pieces,
    places: NDArray[np.int64],
    tokens: NDArray[Any],
    mask: NDArray[np.uint8] | None,
    first_index: int,
) -> None:
    """Fill in the middle, in each sequence the documents of each source that has a rate."""
    fim = FillInTheMiddle.of(mixture)
    if fim is None:
        return
    rates = np.array([*(source.fim_rate for source in mixture.sources), 0.0])  # the last for padding, which is −1
    chosen = np.flatnonzero(rates[pieces.source] > 0)
    for group in _groups(pieces.sequence[chosen], pieces.source[chosen], chosen):
        rows = chosen[group]
        where = _places(places, pieces, rows)
        moved = tokens[where].astype(np.int64)
        counted = np.ones(where.size, np.uint8) if mask is None else mask[where]
        begins = sequence_offsets(pieces.num_tokens[rows])[:-1]
        fim.rearrange(moved, counted, begins, int(pieces.source[rows[0]]), first_index + int(pieces.sequence[rows[0]]))
        tokens[where] = moved
        if mask is not None:
            mask[where] = counted


def _groups(
    first: NDArray[np.int64], second: NDArray[np.int64], within: NDArray[np.int64]
) -> Iterator[NDArray[np.int64]]:
    """The rows of each pair of `first` and `second`, ordered by `within`."""
    order = np.lexsort((within, second, first))
    new = (np.diff(first[order], prepend=-2) != 0) | (np.diff(second[order], prepend=-2) != 0)
    yield from np.split(order, np.flatnonzero(new)[1:]) if order.size else ()


def _places(places: NDArray[np.int64], pieces: Pieces, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each token of the pieces `rows` stands."""
    group, number = ramps(pieces.num_tokens[rows])
    return places[rows][group] + number


@compiled
def _copy(
    source: NDArray[Any],
    target: NDArray[Any],
    starts: NDArray[np.int64],
    places: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> None:
    """Copy spans: `sizes` items from `starts` of `source` to `places` of `target`."""
    for span in range(sizes.size):
        start, place = starts[span], places[span]
        for i in range(sizes[span]):
            target[place + i] = source[start + i]
