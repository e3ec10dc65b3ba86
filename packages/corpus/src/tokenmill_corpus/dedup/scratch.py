"""Arrays that may be larger than memory: files without a name, which the system keeps in memory as far as it can."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def scratch_array(folder: Path, length: int, dtype: DTypeLike) -> NDArray[Any]:
    """`length` zeros on the disk that holds `folder`. The file is gone when nothing refers to the array."""
    if not length:
        return np.zeros(0, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(length * np.dtype(dtype).itemsize)
        return np.memmap(file, dtype, "r+", shape=(length,))


class ScratchWriter:
    """An array that is written piece by piece."""

    def __init__(self, folder: Path, dtype: DTypeLike) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._dtype = np.dtype(dtype)

    def append(self, piece: NDArray[Any]) -> None:
        """Write `piece` after the ones before."""
        self._file.write(np.ascontiguousarray(piece, self._dtype).data)

    def close(self) -> NDArray[Any]:
        """All that was written, memory-mapped. Nothing can be written afterwards."""
        with self._file as file:
            file.flush()
            return np.memmap(file, self._dtype, "r+") if file.tell() else np.zeros(0, self._dtype)
