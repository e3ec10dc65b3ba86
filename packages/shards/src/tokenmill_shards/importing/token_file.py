"""A token file of another tool: what it holds and where its documents end. Each layout has a module that opens one.

datatrove   x.ds    tokens                x.ds.index   u64 ends of the documents; x.ds.loss, a byte a token
olmo        x.npy   tokens, no header     x.csv.gz     start,end[,id,…] a document; without it split by id
llmc        x.bin   1,024 bytes, tokens   split by id, which opens documents
megatron    x.bin   tokens                x.idx        MMIDIDX
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.errors import InputError
from tokenmill_shards.formats.mmididx import open_bytes

CHUNK_TOKENS = 1 << 24
"""Tokens looked at at a time."""
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<i4")}
"""How tokens of each type are read. Ids below 2^31 are the same bytes in both 32-bit types; a higher one is negative
here, so that it is refused as no id."""


@dataclass(frozen=True)
class Reading:
    """What an importer must be told, for layouts that do not say it themselves."""

    dtype: np.dtype[Any]
    """Type of the tokens."""
    end_id: int | None
    """Id that documents are split by."""


@dataclass(frozen=True)
class TokenFile:
    """Tokens and the documents they are."""

    path: Path
    tokens: NDArray[Any]
    """All tokens, mapped, as `<u2` or `<i4`."""
    ends: NDArray[np.int64]
    """Where each document ends, in tokens, rising to the number of tokens: (documents,)."""
    header_bytes: int = 0
    """Bytes before the first token."""
    ids: list[str] | None = None
    """The tool's own id of each document."""
    loss_mask: Path | None = None
    """A file with a byte a token: 1 where it counts for the loss."""


def map_tokens(path: Path, dtype: np.dtype[Any], header_bytes: int = 0) -> NDArray[Any]:
    """The tokens of `path` behind its header, mapped.

    Raises:
        InputError: the bytes are no whole number of tokens.
    """
    content = open_bytes(path)[header_bytes:]
    if content.size % dtype.itemsize:
        raise InputError(
            f"{path}: {content.size:,} bytes are no whole number of tokens of {dtype.itemsize} bytes; "
            "it was cut short, or give the right --dtype"
        )
    return content.view(dtype)


def check_ends(index: Path, ends: NDArray[np.int64], tokens: NDArray[Any]) -> NDArray[np.int64]:
    """`ends`, if they rise from 0 to the number of `tokens`.

    Raises:
        InputError: naming `index` and its first document that is wrong.
    """
    falling = np.flatnonzero(np.diff(ends, prepend=0) < 0)
    if falling.size:
        number = int(falling[0])
        raise InputError(
            f"{index}: document {number + 1} ends at token {ends[number]:,}, before it begins; restore the file"
        )
    last = int(ends[-1]) if ends.size else 0
    if last != tokens.size:
        raise InputError(
            f"{index}: its documents end at token {last:,}, but there are {tokens.size:,} tokens; one of the two files "
            "was cut short or is of another run: restore both"
        )
    return ends


def split_after(path: Path, tokens: NDArray[Any], end_id: int | None) -> NDArray[np.int64]:
    """Ends of documents that `end_id` closes; what stands behind the last one is a document too."""
    ends = _places(tokens, _needed(path, end_id)) + 1
    return _with_last(ends, tokens.size)


def split_before(path: Path, tokens: NDArray[Any], begin_id: int | None) -> NDArray[np.int64]:
    """Ends of documents that `begin_id` opens; what stands before the first one is a document too."""
    begins = _places(tokens, _needed(path, begin_id))
    return _with_last(begins[begins > 0], tokens.size)


def _needed(path: Path, id: int | None) -> int:
    if id is None:
        raise InputError(
            f"{path}: nothing beside it says where documents end, and the tokenizer has no usual end-of-document "
            "token; name it with --end-of-document"
        )
    return id


def _places(tokens: NDArray[Any], id: int) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, np.int64), *(np.flatnonzero(c == id) + at for at, c in _chunks(tokens))])


def _chunks(tokens: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    for at in range(0, tokens.size, CHUNK_TOKENS):
        yield at, tokens[at : at + CHUNK_TOKENS]


def _with_last(ends: NDArray[np.int64], num_tokens: int) -> NDArray[np.int64]:
    has_last = num_tokens == (int(ends[-1]) if ends.size else 0)
    return ends if has_last else np.append(ends, num_tokens)
