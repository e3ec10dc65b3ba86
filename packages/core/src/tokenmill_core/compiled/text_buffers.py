"""The text column of a record batch as one UTF-8 buffer with offsets, without a copy: what the kernels read."""

from dataclasses import dataclass

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenmill_core.compiled.utf8 import decode, is_space


@dataclass(frozen=True)
class TextBuffers:
    """Document i is `data[offsets[i]:offsets[i + 1]]`."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    @property
    def num_bytes(self) -> NDArray[np.int64]:
        """Bytes of each document."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1


def text_buffers(batch: pa.RecordBatch) -> TextBuffers:
    """The buffers behind the `text` column (large_string, no nulls) of `batch`."""
    return column_buffers(batch.column("text"))


def column_buffers(column: pa.Array) -> TextBuffers:
    """The buffers behind a large_string array without nulls."""
    _, offsets, data = column.buffers()
    start = column.offset
    view = np.frombuffer(offsets, np.int64)[start : start + len(column) + 1]
    text = TextBuffers(data=np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8), offsets=view)
    # Arrow's own buffers are read-only, those of edited texts are not: kernels are compiled for one kind alone.
    text.data.flags.writeable = text.offsets.flags.writeable = False
    return text


def with_texts(batch: pa.RecordBatch, text: TextBuffers) -> pa.RecordBatch:
    """`batch` with the documents of `text`, valid UTF-8, in place of its own."""
    offsets, data = np.ascontiguousarray(text.offsets), np.ascontiguousarray(text.data)
    column = pa.LargeStringArray.from_buffers(len(text), pa.py_buffer(offsets), pa.py_buffer(data))
    index = batch.schema.get_field_index("text")
    return batch.set_column(index, batch.schema.field(index), column)


def is_blank(text: TextBuffers) -> NDArray[np.bool_]:
    """Which documents are empty, or white space alone."""
    return _is_blank(text.data, np.ascontiguousarray(text.offsets))


@numba.njit(cache=True)
def _is_blank(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    blank = np.ones(len(offsets) - 1, np.bool_)
    for d in range(len(blank)):
        i = offsets[d]
        while i < offsets[d + 1] and blank[d]:
            code, width = decode(data, i)
            blank[d] = is_space(code)
            i += width
    return blank
