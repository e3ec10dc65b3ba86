"""The torch face of the mixture: step after step, this rank's samples of the global batch.

    samples [c, c + G) of the mixture ─ rank r's contiguous slice ─▶ tokens (G / ranks, L + 1) ─▶ inputs, labels

The order depends on nothing but the number of samples consumed before, so that number alone is enough to go on, and
neither ranks, micro-batches nor prefetching threads change it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from tokenmill_core.errors import VerificationError
from tokenmill_core.manifest import Frozen
from tokenmill_shards.reading.cache import DEFAULT_SIZE
from tokenmill_shards.reading.samples import Samples
from tokenmill_shards.reading.store import Verify
from tokenmill_trainer.batches.batch_plan import BatchPlan
from tokenmill_trainer.loss import IGNORED


class Documents(StrEnum):
    """What documents in one sample have to do with each other."""

    JOIN = "join"
    """Attention and loss run across them, as in GPT-2 and GPT-3."""
    SEPARATE = "separate"
    """Attention stays within each, positions start again, and none is asked to predict the first token of the next."""


class DataConfig(Frozen):
    """What is trained on."""

    mixture: str = ""
    """Path of the mixture manifest; `--mixture` on the command line sets it."""
    sequence_length: int = Field(default=1024, gt=0, le=10**9)
    """Tokens a sample is trained on; a window has one more, the last label."""
    documents: Documents = Documents.JOIN
    """`join`: a sample is one text. `separate`: attention, positions and loss stay within each of its documents."""
    num_workers: int = Field(default=1, ge=0)
    """Threads that read ahead; 0 reads in the training loop itself."""
    verify: Verify = Verify.AUTO
    """What is checked of the shards before training: `sizes`, `full` (every hash), or `auto`, full up to 1 GiB."""
    cache: str | None = None
    """Folder that keeps copies of remote shards; none: $TOKENMILL_CACHE, or `~/.cache/tokenmill/shards`."""
    cache_size: str = DEFAULT_SIZE
    """Most that it keeps, such as `500GB`; what was used least recently makes room."""


class SampleSource(Protocol):
    """What is needed of a reader: samples by global index."""

    def samples(self, indices: NDArray[np.int64]) -> Samples:
        """The samples `indices` (B,)."""
        ...


class Counts(NamedTuple):
    """What samples hold, counted where they are read."""

    tokens_by_source: NDArray[np.int64] = np.zeros(0, np.int64)
    """Counted tokens of each source, as many as occur; empty: not known."""
    num_bytes: int | None = None
    """Bytes of text that the counted tokens spell; none: not known."""


@dataclass(frozen=True)
class RankSamples:
    """This rank's samples of one global batch."""

    first_sample: int
    """Index of the global batch's first sample, the same on all ranks."""
    inputs: Tensor
    """(samples of this rank, L) int64."""
    labels: Tensor
    """(samples of this rank, L) int64, the token after each input, or `loss.IGNORED`."""
    positions: Tensor | None = None
    """(samples of this rank, L) int32, the place of each input in its document; none: documents are joined."""
    sources: Tensor | None = None
    """(samples of this rank,) or (samples of this rank, L) int32, see `Samples.sources`; none: not known."""
    counts: Counts = field(default_factory=Counts)


def counts_of(samples: Samples, byte_lengths: NDArray[np.int64] | None) -> Counts:
    """What the counted labels of `samples` are; `byte_lengths` (V,) says how many bytes each token spells."""
    labels, counted, sources = samples.tokens[:, 1:], samples.counted, samples.sources
    if sources is None:
        tokens = np.zeros(0, np.int64)
    elif sources.ndim == 1:
        in_rows = np.full(len(labels), labels.shape[1]) if counted is None else counted.sum(1)
        tokens = np.bincount(sources, in_rows).astype(np.int64)
    else:
        tokens = np.bincount(sources.ravel() if counted is None else sources[counted])
    if byte_lengths is None:
        return Counts(tokens)
    return Counts(tokens, int(byte_lengths[labels if counted is None else labels[counted]].sum()))


def tensors_of(samples: Samples) -> tuple[Tensor, Tensor, Tensor | None]:
    """(inputs, labels, positions) of B samples, each (B, L); inputs and, where all count, labels share their memory."""
    tokens = torch.from_numpy(samples.tokens)
    inputs, labels = tokens[:, :-1], tokens[:, 1:]
    if samples.counted is not None:
        labels = labels.masked_fill(~torch.from_numpy(samples.counted), IGNORED)
    return inputs, labels, None if samples.positions is None else torch.from_numpy(samples.positions)


@dataclass(frozen=True)
class GlobalBatches:
    """The steps of a run as seen from one rank; iterate from any number of consumed samples."""

    reader: SampleSource
    global_batch_size: int | BatchPlan
    """Samples a step: always as many, or as a plan has it."""
    rank: int = 0
    world_size: int = 1
    num_workers: int = 0
    pin_memory: bool = False
    """Whether batches lie in page-locked memory, from where a GPU fetches them while it computes."""
    vocab_size: int | None = None
    """Ids that there are; none: not checked."""
    byte_lengths: NDArray[np.int64] | None = None
    """(vocab_size,) bytes that each token spells; none: not known."""

    @property
    def plan(self) -> BatchPlan:
        """`global_batch_size` as a plan."""
        size = self.global_batch_size
        return size if isinstance(size, BatchPlan) else BatchPlan.constant(size)

    def read(self, first_sample: int) -> RankSamples:
        """This rank's part of the global batch that begins at `first_sample`."""
        share = self.plan.size_at(first_sample) // self.world_size
        begin = first_sample + self.rank * share
        samples = self.reader.samples(np.arange(begin, begin + share, dtype=np.int64))
        self._refuse_unknown(samples.tokens, begin)
        inputs, labels, positions = tensors_of(samples)
        sources = None if samples.sources is None else torch.from_numpy(samples.sources)
        if self.pin_memory:
            inputs, labels = _pinned(inputs), _pinned(labels)
            positions, sources = (None if part is None else _pinned(part) for part in (positions, sources))
        counts = counts_of(samples, self.byte_lengths)
        return RankSamples(first_sample, inputs, labels, positions, sources, counts)

    def _refuse_unknown(self, tokens: NDArray[np.int64], first_sample: int) -> None:
        """An id beyond the vocabulary is damage, which an embedding would fail on without a name."""
        if self.vocab_size is None or not tokens.size or int(tokens.view(np.uint64).max()) < self.vocab_size:
            return
        row = int(np.argmax((tokens.view(np.uint64) >= self.vocab_size).any(1)))
        raise VerificationError(
            f"sample {first_sample + row} holds the id {tokens[row].view(np.uint64).max()}, but the vocabulary ends at "
            f"{self.vocab_size - 1}: a shard is damaged; `prep verify` on the mixture names it, or start with "
            "--set data.verify=full"
        )

    def iterate(self, consumed_samples: int, num_steps: int) -> Iterator[RankSamples]:
        """`num_steps` global batches from sample `consumed_samples` on."""
        starts = self.plan.steps_from(consumed_samples, num_steps)
        if self.num_workers == 0:
            yield from map(self.read, starts)
        else:
            yield from _read_ahead(self.read, starts, self.num_workers)


def _pinned(tensor: Tensor) -> Tensor:
    """A contiguous copy in page-locked memory: from a view with gaps a GPU copies only by way of ordinary memory."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)


def _read_ahead(read: Callable[[int], RankSamples], starts: Iterable[int], num_workers: int) -> Iterator[RankSamples]:
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
