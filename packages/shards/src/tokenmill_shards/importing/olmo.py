"""OLMo's tokens: `x.npy`, which despite its name has no header, and where documents were kept track of `x.csv.gz`."""

import gzip
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
from numpy.typing import NDArray

from tokenmill_core.errors import InputError
from tokenmill_shards.formats.mmididx import open_bytes
from tokenmill_shards.importing.token_file import Reading, TokenFile, check_ends, map_tokens, split_after

SUFFIX = ".npy"
_NUMPY_MAGIC = b"\x93NUMPY"


def companions(path: Path) -> list[Path]:
    """Files that may lie beside `path` and say more of it."""
    return [path.with_name(path.name.removesuffix(SUFFIX) + ".csv.gz")]


def open_file(path: Path, reading: Reading) -> TokenFile:
    """The tokens of `path`, which says nothing of their type."""
    if open_bytes(path)[: len(_NUMPY_MAGIC)].tobytes() == _NUMPY_MAGIC:
        raise InputError(f"{path}: an array that numpy.save wrote, not bare tokens; write it anew with ndarray.tofile")
    tokens = map_tokens(path, reading.dtype)
    bounds = companions(path)[0]
    if not bounds.exists():
        return TokenFile(path, tokens, split_after(path, tokens, reading.end_id))
    starts, ends, ids = _read_bounds(bounds)
    gaps = np.flatnonzero(starts != np.append(0, ends)[: starts.size])
    if gaps.size:
        number = int(gaps[0])
        before = int(ends[number - 1]) if number else 0
        raise InputError(
            f"{bounds}: row {number + 1} begins at token {starts[number]:,}, what stands before it ends at {before:,}; "
            "documents must follow one another: remove this file to split at end-of-document tokens"
        )
    return TokenFile(path, tokens, check_ends(bounds, ends, tokens), ids=ids)


def _read_bounds(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str] | None]:
    """(starts, ends, ids) of a file with the columns start, end and, where it has more, id."""
    try:
        content = gzip.decompress(path.read_bytes())
        if not content:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), None
        table = csv.read_csv(
            pa.BufferReader(content),
            read_options=csv.ReadOptions(autogenerate_column_names=True),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(("f0", "f1", "f2"), pa.string()), strings_can_be_null=False
            ),
        )
        starts, ends = table.column("f0"), table.column("f1")
    except (EOFError, OSError, zlib.error, pa.ArrowInvalid, KeyError) as error:
        raise InputError(f"{path}: no gzipped rows of start,end[,id,…] in tokens: {error}; restore the file") from error
    ids = table.column("f2").to_pylist() if table.num_columns > 2 else None
    return _numbers(path, "start", starts), _numbers(path, "end", ends), ids


def _numbers(path: Path, field: str, texts: pa.ChunkedArray) -> NDArray[np.int64]:
    """A column of numbers of tokens.

    Raises:
        InputError: naming the first row that has none there.
    """
    texts = pc.ascii_trim_whitespace(texts)
    row = pc.index(pc.match_substring_regex(texts, "^[0-9]{1,18}$"), False).as_py()
    if row >= 0:
        raise InputError(
            f"{path}: row {row + 1}: its {field} is {texts[row].as_py()!r}, but must be a number of tokens; restore "
            "the file, or remove it to split at end-of-document tokens"
        )
    numbers: NDArray[np.int64] = texts.cast(pa.int64()).to_numpy()
    return numbers
