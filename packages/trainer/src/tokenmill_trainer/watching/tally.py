"""What a step was made of, over all ranks: loss and tokens of each source, bytes of text, memory.

micro-batch ─ loss of each token ─▶ sums by source ─┐
the step's counts, from the reading thread ─────────┼─▶ values ─ the sum that ranks make anyway ─▶ Tally
memory of this rank, in a place of its own ─────────┘
"""

import resource
import sys
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tokenmill_trainer.batches.micro_batches import Batch
from tokenmill_trainer.report import Tally
from tokenmill_trainer.world import World


class StepTally:
    """Gathers over the micro-batches of a step. `names`: the sources that batches number; none: not told apart."""

    def __init__(self, names: Sequence[str], world: World) -> None:
        self._names = tuple(names)
        self._world = world
        # fp64, because on a GPU the order of the additions is not always the same.
        self._losses = torch.zeros(len(self._names), dtype=torch.float64, device=world.device)

    def add(self, batch: Batch, loss_by_token_N: Tensor) -> None:
        """Take in the losses of a micro-batch's tokens, 0 where a label is not counted."""
        if batch.sources is None or not self._names:
            return
        losses_BL = loss_by_token_N.view_as(batch.labels)
        losses = losses_BL.sum(1, dtype=torch.float64) if batch.sources.ndim == 1 else losses_BL.double().flatten()
        self._losses.index_add_(0, batch.sources.flatten(), losses)

    def values(self, batch: Batch) -> list[float]:
        """What is to be summed over ranks, once the step's last micro-batch is in; `read` reads the sums."""
        tokens = np.zeros(len(self._names), np.int64)
        counted = batch.counts.tokens_by_source[: len(self._names)]
        tokens[: len(counted)] = counted
        memory = np.zeros((self._world.size, 2))
        memory[self._world.rank] = peak_memory(self._world.device)
        num_bytes = batch.counts.num_bytes
        known = (0.0, 1.0) if num_bytes is None else (float(num_bytes), 0.0)
        return [*self._losses.tolist(), *tokens.tolist(), *known, *memory.flatten().tolist()]

    def read(self, sums: Sequence[float]) -> Tally:
        """The sums of all ranks' `values`, by name."""
        num_sources = len(self._names)
        losses, tokens = sums[:num_sources], sums[num_sources : 2 * num_sources]
        num_bytes, unknown = sums[2 * num_sources : 2 * num_sources + 2]
        memory = sums[2 * num_sources + 2 :]
        rows = [row for row in zip(self._names, losses, tokens, strict=True) if row[2]]
        return Tally(
            loss_by_source={name: loss / count for name, loss, count in rows},
            tokens_by_source={name: int(count) for name, _, count in rows},
            num_bytes=None if unknown else int(num_bytes),
            memory_bytes=int(max(memory[::2])),
            memory_reserved_bytes=int(max(memory[1::2])) or None,
        )

    def forget(self) -> None:
        """Begin the next step."""
        self._losses.zero_()


def peak_memory(device: torch.device) -> tuple[int, int]:
    """Bytes that this rank has needed at most, and bytes it has taken from a GPU for that: 0 where there is none."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, 0
