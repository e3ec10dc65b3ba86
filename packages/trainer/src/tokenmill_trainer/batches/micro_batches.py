"""A rank's samples of a step, cut into the micro-batches that the engine works on, on its device."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tokenmill_trainer.batches.agreed_steps import AgreedStep
from tokenmill_trainer.batches.data import Counts


@dataclass(frozen=True)
class Batch:
    """One micro-batch, on the device."""

    inputs: Tensor
    """(samples, L) int64 token ids."""
    labels: Tensor
    """(samples, L) int64, the next tokens; `IGNORED` (-100) is not counted."""
    positions: Tensor | None
    """(samples, L) int32, the place of each input in its document; none: documents are joined."""
    sources: Tensor | None
    """(samples,) or (samples, L) int32, the source of each sample or label; none: not known."""
    first_sample: int
    """Index of the first sample of the global batch it belongs to."""
    global_tokens: int
    """Counted tokens of the whole global batch, over all ranks."""
    counts: Counts
    """What this rank's whole part of the global batch holds."""
    is_last: bool
    """Whether it closes its step."""


def micro_batches(step: AgreedStep, size: int, device: torch.device) -> Iterator[Batch]:
    """The samples of `step`, `size` at a time."""
    samples, global_tokens = step
    for begin in range(0, len(samples.inputs), size):
        rows = slice(begin, begin + size)
        inputs, labels, positions, sources = (
            None if part is None else part[rows].to(device, non_blocking=True)
            for part in (samples.inputs, samples.labels, samples.positions, samples.sources)
        )
        assert inputs is not None
        assert labels is not None
        yield Batch(
            inputs,
            labels,
            positions,
            sources,
            samples.first_sample,
            global_tokens,
            samples.counts,
            is_last=begin + size >= len(samples.inputs),
        )
