"""The torch face of the mixture: step after step, this rank's samples of the global batch.

    samples [c, c + G) of the mixture ─ rank r's contiguous slice ─▶ windows (G / ranks, L + 1) ─▶ inputs, labels

The order depends on nothing but the number of samples consumed before, so that number alone is enough to go on, and
neither ranks, micro-batches nor prefetching threads change it.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from tokenmill_core.manifest import Frozen
from tokenmill_shards.reading.source import Verify


class DataConfig(Frozen):
    """What is trained on."""

    mixture: str = ""
    """Path of the mixture manifest; `--mixture` on the command line sets it."""
    sequence_length: int = Field(default=1024, gt=0)
    """Tokens a sample is trained on; a window has one more, the last label."""
    num_workers: int = Field(default=1, ge=0)
    """Threads that read ahead; 0 reads in the training loop itself."""
    verify: Verify = Verify.AUTO
    """What is checked of the shards before training: `sizes`, `full` (every hash), or `auto`, full up to 1 GiB."""


class WindowReader(Protocol):
    """What is needed of a mixture: windows of tokens by global sample index."""

    def windows(self, indices: NDArray[np.int64]) -> NDArray[np.int32]:
        """(number of indices, sequence_length + 1) token ids."""
        ...


@dataclass(frozen=True)
class RankSamples:
    """This rank's samples of one global batch."""

    first_sample: int
    """Index of the global batch's first sample, the same on all ranks."""
    inputs: Tensor
    """(samples of this rank, L) int64."""
    labels: Tensor
    """(samples of this rank, L) int64, the token after each input, or `loss.IGNORED`."""


def split_window(windows: NDArray[np.int32]) -> tuple[Tensor, Tensor]:
    """(inputs, labels), each (n, L) int64, of windows (n, L + 1)."""
    tokens = torch.from_numpy(windows.astype(np.int64))
    return tokens[:, :-1], tokens[:, 1:]


@dataclass(frozen=True)
class GlobalBatches:
    """The steps of a run as seen from one rank; iterate from any number of consumed samples."""

    reader: WindowReader
    global_batch_size: int
    rank: int = 0
    world_size: int = 1
    num_workers: int = 0

    def read(self, first_sample: int) -> RankSamples:
        """This rank's part of the global batch that begins at `first_sample`."""
        share = self.global_batch_size // self.world_size
        begin = first_sample + self.rank * share
        windows = self.reader.windows(np.arange(begin, begin + share, dtype=np.int64))
        return RankSamples(first_sample, *split_window(windows))

    def iterate(self, consumed_samples: int, num_steps: int) -> Iterator[RankSamples]:
        """`num_steps` global batches from sample `consumed_samples` on."""
        starts = range(consumed_samples, consumed_samples + num_steps * self.global_batch_size, self.global_batch_size)
        if self.num_workers == 0:
            yield from map(self.read, starts)
        else:
            yield from _read_ahead(self.read, starts, self.num_workers)


def _read_ahead(read: Callable[[int], RankSamples], starts: range, num_workers: int) -> Iterator[RankSamples]:
    pool = ThreadPoolExecutor(num_workers, thread_name_prefix="tokenmill-data")
    waiting: deque[Future[RankSamples]] = deque()
    try:
        for start in starts:
            waiting.append(pool.submit(read, start))
            if len(waiting) > num_workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
