"""Whether a fast engine gives the ids of the reference: on texts that tell engines apart, and on real ones."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenmill_tokenizer.engines import Backend

REAL_BYTES = 32 << 10
"""Bytes of real text that a proof takes, once a task: some 10 ms of the reference's time."""
SHOWN = 40
"""Characters of a text that a message shows."""


def prove(fast: Backend, reference: Backend, texts: pa.Array) -> str | None:
    """None where both give the same ids of `texts` (large_string, no nulls), else what differs, in words."""
    try:
        ids, lengths = fast.encode(texts)
    except Exception as error:  # whatever is wrong with it, it is not to be used
        return f"{fast.label} fails: {error}"
    right_ids, right_lengths = reference.encode(texts)
    if np.array_equal(ids, right_ids) and np.array_equal(lengths, right_lengths):
        return None
    parts, right_parts = _split(ids, lengths), _split(right_ids, right_lengths)
    k = next(k for k in range(len(texts)) if parts[k] != right_parts[k])
    difference = _difference(parts[k], right_parts[k])
    return f"{_shorten(texts[k].as_py())}: {fast.label} gives {difference} with {reference.label}"


def _split(ids: NDArray[np.uint32], lengths: NDArray[np.int64]) -> list[list[int]]:
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


def _difference(own: Sequence[int], right: Sequence[int]) -> str:
    pairs = zip(own, right, strict=False)
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(own), len(right)))
    return f"{_at(own, place)} at place {place}, which is {_at(right, place)}"


def _at(ids: Sequence[int], place: int) -> str:
    return f"id {ids[place]}" if place < len(ids) else "no id"


def _shorten(text: str) -> str:
    return ascii(text) if len(text) <= SHOWN else f"{text[:SHOWN]!a}... ({len(text)} characters)"


def first_texts(texts: pa.Array, num_bytes: int = REAL_BYTES) -> pa.Array:
    """The first of `texts`, `num_bytes` together, the last one cut where it would be more."""
    _, buffer, _ = texts.buffers()
    offsets = np.frombuffer(buffer, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    whole = int(np.searchsorted(offsets, offsets[0] + num_bytes, side="right")) - 1
    if whole >= len(texts):
        return texts
    rest = int(offsets[0]) + num_bytes - int(offsets[whole])
    cut = texts[whole].as_py().encode()[:rest].decode(errors="ignore")
    return pa.concat_arrays([texts.slice(0, whole), pa.array([cut], pa.large_string())])
