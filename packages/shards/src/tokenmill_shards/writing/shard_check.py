"""A shard compared with what it must hold: when it is written, and whenever its dataset is verified."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokenmill_core.errors import VerificationError
from tokenmill_shards.formats.mmididx import Shard, open_bytes
from tokenmill_shards.formats.places import MASK_SUFFIX, PLACES_SCHEMA, PLACES_SUFFIX
from tokenmill_shards.writing.boundaries import Boundaries

CHUNK_TOKENS = 1 << 20
"""Tokens looked at together: few enough to stay in the processor's cache from one look to the next."""


@dataclass(frozen=True)
class Expected:
    """What a shard must hold."""

    dtype: np.dtype[Any]
    vocab_size: int
    boundaries: Boundaries
    has_mask: bool
    num_documents: int
    num_tokens: int


def shard_problems(
    shard: Shard, expected: Expected, on_tokens: Callable[[int], None] = lambda tokens: None
) -> Iterator[str]:
    """What `shard` has that is not as `expected`, one phrase each; `on_tokens` hears how many have been looked at.

    Errors: `OSError` where a file cannot be read; `VerificationError` where one is missing.
    """
    yield from _differing("token type", shard.dtype.name, expected.dtype.name)
    yield from _differing("documents", shard.num_documents, expected.num_documents)
    yield from _differing("tokens", shard.num_tokens, expected.num_tokens)
    seen = _survey(shard.tokens, sorted(expected.boundaries.unmistakable), on_tokens)
    if seen.lowest < 0 or seen.highest >= expected.vocab_size:
        yield f"ids from {seen.lowest} to {seen.highest}, but its vocabulary has {expected.vocab_size:,}"
    yield from _boundary_problems(shard, expected.boundaries, seen.counts)
    yield from _place_problems(shard)
    if expected.has_mask:
        yield from _mask_problems(shard, expected.boundaries)


class _Seen(NamedTuple):
    """What a look at all tokens of a shard found; of none, the lowest and the highest id are 0."""

    lowest: int
    highest: int
    counts: dict[int, int]
    """How often some ids stand there."""


def _survey(tokens: NDArray[Any], ids: Sequence[int], on_tokens: Callable[[int], None]) -> _Seen:
    lowest, highest, counts = [0], [0], dict.fromkeys(ids, 0)
    for start in range(0, tokens.size, CHUNK_TOKENS):
        chunk = tokens[start : start + CHUNK_TOKENS]
        lowest.append(int(chunk.min()))
        highest.append(int(chunk.max()))
        for id in ids:
            counts[id] += _count(chunk, id)
        on_tokens(chunk.size)
    return _Seen(min(lowest), max(highest), counts)


def _boundary_problems(shard: Shard, boundaries: Boundaries, counts: dict[int, int]) -> Iterator[str]:
    offsets = shard.document_offsets
    with_tokens = np.diff(offsets) > 0
    firsts, lasts = offsets[:-1][with_tokens], offsets[1:][with_tokens] - 1
    for what, id, places in (("begin", boundaries.begin_id, firsts), ("end", boundaries.end_id, lasts)):
        if id is not None:
            yield from _differing(
                f"documents that {what} with {id}", _count(shard.tokens[places], id), shard.num_documents
            )
    for id, have in counts.items():
        need = boundaries.ids.count(id) * shard.num_documents
        if have != need:
            yield (
                f"{have:,} times the id {id}, which begins or ends documents, but they need {need:,}: text itself "
                "became it, so name another token to begin or end documents with"
            )


def _place_problems(shard: Shard) -> Iterator[str]:
    places = pq.read_metadata(f"{shard.prefix}{PLACES_SUFFIX}")
    yield from _differing("rows of places", places.num_rows, shard.num_documents)
    missing = set(PLACES_SCHEMA.names) - set(places.schema.names)
    if missing:
        yield f"places without {', '.join(sorted(missing))}, but it needs them all"


def _mask_problems(shard: Shard, boundaries: Boundaries) -> Iterator[str]:
    mask = open_bytes(shard.prefix.with_name(shard.prefix.name + MASK_SUFFIX))
    if mask.size != shard.num_tokens:
        yield f"bytes of loss mask: {mask.size:,}, but {shard.num_tokens:,} are needed"
        return
    if mask.size and mask.max() > 1:
        yield f"a loss mask with the value {mask.max()}, but only 0 and 1 mean something"
    begins = shard.document_offsets[:-1][np.diff(shard.document_offsets) > 0]
    if boundaries.begin_id is not None and mask[begins].any():
        yield "a loss mask in which a token that opens a document counts, but none may"


def check_shard(prefix: Path, expected: Expected, lengths: NDArray[np.int32]) -> None:
    """Raise VerificationError where the shard just written does not hold what is `expected`, documents of `lengths`."""
    shard = Shard(prefix)
    problem = next(shard_problems(shard, expected), None)
    if problem is None and not np.array_equal(shard.lengths, lengths):
        problem = "documents of other lengths than were written"
    if problem is not None:
        raise VerificationError(f"{prefix}: read back, the shard has {problem}; check the disk and tokenize again")


def _count(tokens: NDArray[Any], id: int) -> int:
    return int(np.count_nonzero(tokens == id))


def _differing(what: str, have: object, need: object) -> Iterator[str]:
    if have != need:
        yield f"{what}: {have}, but {need} are needed"
