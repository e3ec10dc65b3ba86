"""The parts of documents that a sample is made of, whether it is drawn from a mixture or lies packed."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenmill_shards.packing.reader import PackedReader
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_shards.reading.store import ShardStore

Identity = tuple[str, int, int]
"""A document: source, shard, number in the shard."""


class Part(NamedTuple):
    """The tokens of one document that one sample has."""

    source: str
    store: ShardStore | None
    """The dataset of the document; none where it is not found: packed sequences can be read without."""
    epoch: int
    shard: int
    document: int
    """Number in the shard."""
    offset: int
    """Tokens of the document before the part."""
    first_token: int
    """Place in the sample, from 0."""
    last_token: int
    """Place in the sample, inclusive."""

    @property
    def identity(self) -> Identity:
        """Which document it is of."""
        return self.source, self.shard, self.document


def parts_of(reader: MixtureReader | PackedReader, index: int) -> list[Part]:
    """The parts of global sample `index`, in order."""
    return _packed_parts(reader, index) if isinstance(reader, PackedReader) else _mixture_parts(reader, index)


def tokens_of(part: Part, store: ShardStore) -> NDArray[Any]:
    """The tokens of the part as the document in `store` has them."""
    begin = int(store.index(part.shard).document_offsets[part.document]) + part.offset
    return store.tokens(part.shard)[begin : begin + part.last_token + 1 - part.first_token]


def _mixture_parts(reader: MixtureReader, index: int) -> list[Part]:
    source, epoch, window = (int(column[0]) for column in reader.mixture.locate(np.array([index], np.int64)))
    stream, start = reader.training[source], window * reader.sequence_length
    stop = start + reader.sequence_length + 1
    return [
        Part(
            source=stream.name,
            store=stream.store,
            epoch=epoch,
            shard=piece.shard,
            document=piece.document,
            offset=max(start - piece.first, 0),
            first_token=max(piece.first - start, 0),
            last_token=min(piece.stop, stop) - 1 - start,
        )
        for piece in stream.overlapping(start, stop)
    ]


def _packed_parts(reader: PackedReader, index: int) -> list[Part]:
    pieces, names, stores = reader.pieces(index), reader.manifest.sources, reader.stores
    ends = np.cumsum(pieces.num_tokens)
    columns = (pieces.source, pieces.epoch, pieces.shard, pieces.document, pieces.first_token)
    rows = zip(*(column.tolist() for column in (*columns, ends - pieces.num_tokens, ends - 1)), strict=True)
    return [Part(names[source], None if stores is None else stores[source], *rest) for source, *rest in rows]
