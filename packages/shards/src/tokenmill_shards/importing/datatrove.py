"""datatrove's tokens: `x.ds`, with `x.ds.index` and, where the loss is masked, `x.ds.loss`."""

from pathlib import Path

import numpy as np

from tokenmill_core.errors import InputError
from tokenmill_shards.formats.mmididx import open_bytes
from tokenmill_shards.importing.token_file import DTYPES, Reading, TokenFile, check_ends, map_tokens, split_after

SUFFIX = ".ds"


def companions(path: Path) -> list[Path]:
    """Files that may lie beside `path` and say more of it."""
    return [path.with_name(path.name + suffix) for suffix in (".index", ".loss")]


def open_file(path: Path, reading: Reading) -> TokenFile:
    """The tokens of `path`. Whether they have two bytes or four, the number of tokens in the index says."""
    index, loss = companions(path)
    mask = loss if loss.exists() else None
    if not index.exists():
        tokens = map_tokens(path, reading.dtype)
        return TokenFile(path, tokens, split_after(path, tokens, reading.end_id), loss_mask=mask)
    content = open_bytes(index)
    if content.size % 8:
        raise InputError(f"{index}: {content.size:,} bytes are no whole number of 8-byte ends; restore the file")
    ends = content.view("<u8").astype(np.int64)
    num_tokens, num_bytes = int(ends[-1]) if ends.size else 0, path.stat().st_size
    fitting = [dtype for dtype in DTYPES.values() if num_tokens * dtype.itemsize == num_bytes]
    if not fitting:
        raise InputError(
            f"{path} has {num_bytes:,} bytes, but the documents of {index.name} end at token {num_tokens:,}, of 2 or 4 "
            "bytes each; one of the two was cut short or is of another run: restore both"
        )
    tokens = map_tokens(path, fitting[0] if num_tokens else reading.dtype)
    return TokenFile(path, tokens, check_ends(index, ends, tokens), loss_mask=mask)
