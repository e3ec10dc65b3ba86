"""The text column of a record batch as one UTF-8 buffer with offsets, without a copy: what the kernels read."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True)
class TextBuffers:
    """Document i is `data[offsets[i]:offsets[i + 1]]`."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    @property
    def num_bytes(self) -> NDArray[np.int64]:
        """Bytes of each document."""
        return np.diff(self.offsets)


def text_buffers(batch: pa.RecordBatch) -> TextBuffers:
    """The buffers behind the `text` column (large_string, no nulls) of `batch`."""
    column = batch.column("text")
    _, offsets, data = column.buffers()
    start = column.offset
    view = np.frombuffer(offsets, np.int64)[start : start + len(column) + 1]
    return TextBuffers(data=np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8), offsets=view)
