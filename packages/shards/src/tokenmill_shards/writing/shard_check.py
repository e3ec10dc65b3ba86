"""A shard read back from disk and compared with what was meant to be written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokenmill_core.errors import VerificationError
from tokenmill_shards.formats.mmididx import Shard
from tokenmill_shards.formats.places import PLACES_SUFFIX
from tokenmill_shards.writing.boundaries import Boundaries
from tokenmill_shards.writing.loss_masks import MASK_SUFFIX


@dataclass(frozen=True)
class Expected:
    """What a shard must hold."""

    dtype: np.dtype[Any]
    vocab_size: int
    boundaries: Boundaries
    has_mask: bool
    lengths: NDArray[np.int32]
    """Tokens of each document."""


def check_shard(prefix: Path, expected: Expected) -> None:
    """Raise VerificationError, naming the shard, where its files do not hold what is `expected`."""
    shard = Shard(prefix)
    _same(prefix, "token type", shard.dtype, expected.dtype)
    _same(prefix, "documents", shard.num_documents, expected.lengths.size)
    _same(prefix, "tokens", shard.num_tokens, int(expected.lengths.sum(dtype=np.int64)))
    if not np.array_equal(shard.lengths, expected.lengths):
        raise _differs(prefix, "documents of other lengths than were written")
    if shard.num_tokens and not 0 <= int(shard.tokens.min()) <= int(shard.tokens.max()) < expected.vocab_size:
        raise _differs(prefix, f"ids from {shard.tokens.min()} to {shard.tokens.max()} of {expected.vocab_size:,}")
    _check_boundaries(shard, expected.boundaries)
    _same(prefix, "rows of places", pq.read_metadata(f"{prefix}{PLACES_SUFFIX}").num_rows, expected.lengths.size)
    if expected.has_mask:
        _check_mask(shard, expected.boundaries)


def _check_boundaries(shard: Shard, boundaries: Boundaries) -> None:
    offsets = shard.document_offsets
    for what, id, places in (("begin", boundaries.begin_id, offsets[:-1]), ("end", boundaries.end_id, offsets[1:] - 1)):
        if id is not None:
            _same(shard.prefix, f"documents that {what} with {id}", _count(shard.tokens[places], id), places.size)
    for id in boundaries.unmistakable:
        need = boundaries.ids.count(id) * shard.num_documents
        have = _count(shard.tokens, id)
        if have != need:
            raise _differs(
                shard.prefix,
                f"{have:,} times the id {id}, which begins or ends documents, where they need {need:,}: text itself "
                "became it, so name another token to begin or end documents with",
            )


def _check_mask(shard: Shard, boundaries: Boundaries) -> None:
    mask = np.fromfile(f"{shard.prefix}{MASK_SUFFIX}", np.uint8)
    _same(shard.prefix, "bytes of loss mask", mask.size, shard.num_tokens)
    if mask.size and mask.max() > 1:
        raise _differs(shard.prefix, f"a loss mask with the value {mask.max()}")
    if boundaries.begin_id is not None and mask[shard.document_offsets[:-1]].any():
        raise _differs(shard.prefix, "a loss mask in which a token that opens a document counts")


def _count(tokens: NDArray[Any], id: int) -> int:
    return int(np.count_nonzero(tokens == id))


def _same(prefix: Path, what: str, have: object, need: object) -> None:
    if have != need:
        raise _differs(prefix, f"{what}: {have}, but {need} were written")


def _differs(prefix: Path, have: str) -> VerificationError:
    return VerificationError(f"{prefix}: read back, the shard has {have}; check the disk and tokenize again")
