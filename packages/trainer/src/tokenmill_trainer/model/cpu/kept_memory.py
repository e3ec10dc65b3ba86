"""Memory for large results that come and go at once, such as the logits of a chunk, kept from one to the next.

malloc takes memory of 32 MiB and more from the system each time and gives it back at once. New pages are cleared and
mapped one by one, which costs half as much as the product that fills them.
"""

import weakref
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LEAST, MOST = 32 << 20, 512 << 20
"""Bytes of what is kept; malloc keeps what is smaller, and more is too much to hold back."""


class _Kept:
    def __init__(self) -> None:
        self._memory: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._in_use: weakref.ref[Any] | None = None
        """An array on that memory, which lives as long as the tensor that has it."""
        self._lock = Lock()

    def take(self, num_bytes: int) -> Tensor | None:
        """So many bytes, unless another tensor has them still."""
        with self._lock:
            if self._in_use is not None and self._in_use() is not None:
                return None
            if len(self._memory) != num_bytes:
                self._memory = np.empty(num_bytes, np.uint8)
            part = self._memory[:]
            self._in_use = weakref.ref(part)
            return torch.from_numpy(part)


_kept = _Kept()


def empty(M: int, N: int, dtype: torch.dtype) -> Tensor:
    """An empty (M, N)."""
    num_bytes = M * N * dtype.itemsize
    memory = _kept.take(num_bytes) if LEAST <= num_bytes <= MOST else None
    return torch.empty(M, N, dtype=dtype) if memory is None else memory.view(dtype).view(M, N)
