"""Which documents of a source each chunk of sequences takes, for `best-fit`.

    epoch 0              epoch 1
    c a e d b            e b a c d            each epoch's documents in an order of its own
    ────────┬────────────┬──────────▶ tokens
          border 1     border 2               L labels for each sample that the mixture draws before a chunk

A document belongs to the chunk in which its first token lies, whole. What a chunk takes too much the next takes less,
so no token is drawn twice in an epoch and none is left out, and a longer run only adds chunks.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_shards.formats.mmididx import sequence_offsets
from tokenmill_shards.order.permutation import ROUNDS, permute, permute_groups, round_keys
from tokenmill_shards.packing.keys import pack_key
from tokenmill_shards.packing.pieces import Pieces
from tokenmill_shards.reading.stream import TokenStream

TOGETHER = 1 << 20
"""Documents of an epoch whose order is computed at once, to bound the memory."""


class Draws(NamedTuple):
    """The draws of one source: number k is a document of epoch k // documents."""

    borders: NDArray[np.int64]
    """Draws before each chunk, and in all: (chunks + 1,)."""
    shard_documents: NDArray[np.int64]
    """Documents before each shard, and in all: (shards + 1,)."""


def plan_draws(mixture: MixtureManifest, stream: TokenStream, targets: NDArray[np.int64]) -> Draws:
    """The draws of a source that is to give `targets` (chunks + 1,) tokens before each chunk.

    Reads the index of every shard, and takes 4 bytes of memory a document.
    """
    lengths = [
        np.diff(stream.documents(shard).offsets).astype(np.int32) for shard in range(len(stream.shard_offsets) - 1)
    ]
    shard_documents = sequence_offsets([part.size for part in lengths])
    if not stream.num_tokens:
        return Draws(np.zeros_like(targets), shard_documents)
    flat = np.concatenate(lengths)
    epochs, rest = np.divmod(targets, stream.num_tokens)
    borders = epochs * flat.size
    for epoch in np.unique(epochs).tolist():
        chosen = epochs == epoch
        borders[chosen] += _documents_before(flat, rest[chosen], pack_key(mixture, "documents", stream.name, epoch))
    return Draws(borders, shard_documents)


def _documents_before(lengths: NDArray[np.int32], targets: NDArray[np.int64], key: bytes) -> NDArray[np.int64]:
    """How many documents, in the order of `key`, begin before each of `targets` tokens."""
    before, tokens = np.zeros(targets.size, np.int64), 0
    for first in range(0, lengths.size, TOGETHER):
        last = min(first + TOGETHER, lengths.size)
        drawn = lengths[permute(np.arange(first, last), lengths.size, key)]
        starts = tokens + sequence_offsets(drawn)
        before += np.searchsorted(starts[:-1], targets)
        tokens = int(starts[-1])
        if tokens >= targets.max():
            break
    return before


def drawn_documents(mixture: MixtureManifest, source: int, stream: TokenStream, draws: Draws, chunk: int) -> Pieces:
    """The documents of a source that `chunk` takes, whole, in the order they are drawn; `sequence` is not yet known."""
    size = int(draws.shard_documents[-1])
    first, last = draws.borders[chunk : chunk + 2].tolist()
    epoch, place = np.divmod(np.arange(first, last), max(size, 1))
    epochs, group = np.unique(epoch, return_inverse=True)
    keys = [round_keys(pack_key(mixture, "documents", stream.name, number)) for number in epochs.tolist()]
    number = permute_groups(place, group, np.full(epochs.size, size), np.array(keys, np.uint64).reshape(-1, ROUNDS))
    shard = np.searchsorted(draws.shard_documents, number, "right") - 1
    found = Pieces(*(np.zeros(number.size, np.int64) for _ in Pieces._fields))
    found.source[:], found.epoch[:], found.shard[:] = source, epoch, shard
    order = np.argsort(shard, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(shard[order])) + 1) if order.size else []:
        _fill(found, rows, stream, draws, number)
    return found


def _fill(found: Pieces, rows: NDArray[np.int64], stream: TokenStream, draws: Draws, number: NDArray[np.int64]) -> None:
    """Fill in what the index of their shard knows of the documents `rows`, which all lie in one."""
    shard = int(found.shard[rows[0]])
    documents, local = stream.documents(shard), number[rows] - draws.shard_documents[shard]
    lengths = documents.offsets[local + 1] - documents.offsets[local]
    found.document[rows], found.physical[rows] = documents.numbers[local], documents.physical[local]
    found.num_tokens[rows] = found.document_tokens[rows] = lengths
