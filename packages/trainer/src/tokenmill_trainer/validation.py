"""Loss on windows that training never sees, source by source.

Every rank runs the same number of micro-batches, however many windows there are: the last ones are filled up with
windows that do not count, because with sharded parameters a rank that stops early would leave the others waiting.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from tokenmill_core.manifest import Frozen
from tokenmill_shards.reading.windows import MixtureReader
from tokenmill_trainer.data import split_window
from tokenmill_trainer.loss import IGNORED, token_loss_sum
from tokenmill_trainer.model import Decoder
from tokenmill_trainer.parallel import release_parameters
from tokenmill_trainer.world import World


class ValidationConfig(Frozen):
    """How often and how much."""

    interval: int = Field(default=0, ge=0)
    """Steps between two validations; the last step has one too. 0: none at all."""
    samples: int = Field(default=64, gt=0)
    """Most held-out windows that are read of each source: the same ones every time, on any number of ranks."""


def validate(
    model: Decoder, world: World, reader: MixtureReader, config: ValidationConfig, micro_batch_size: int
) -> dict[str, Any]:
    """`val_loss`, the sources' token means weighted as in the mixture, and `val_loss_by_source`, in nats; collective.

    A source without validation windows is left out, and where none has any both are empty.
    """
    weights = {source.name: source.weight for source in reader.manifest.sources}
    losses: dict[str, float] = {}
    for name in weights:
        windows = reader.validation(name, count=config.samples)
        if len(windows):
            losses[name] = _token_mean(model, world, windows, micro_batch_size)
    release_parameters(model)
    total = sum(weights[name] for name in losses)
    mean = sum(weights[name] * loss for name, loss in losses.items()) / total if total else None
    return {"val_loss": mean, "val_loss_by_source": losses}


@torch.no_grad()
def _token_mean(model: Decoder, world: World, windows: NDArray[np.int32], micro_batch_size: int) -> float:
    total, counted = torch.zeros((), dtype=torch.float64), 0
    for inputs, labels in rank_batches(windows, world.rank, world.size, micro_batch_size):
        counted += int((labels != IGNORED).sum())
        total += token_loss_sum(model, inputs.to(world.device), labels.to(world.device)).double().cpu()
    total_everywhere, counted_everywhere = world.sum([total.item(), counted])
    return total_everywhere / counted_everywhere


def rank_batches(
    windows: NDArray[np.int32], rank: int, world_size: int, micro_batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """This rank's micro-batches (inputs, labels), each (micro_batch_size, L): as many on every rank.

    Together the ranks read each window once.
    """
    per_rank = micro_batch_size * math.ceil(len(windows) / (micro_batch_size * world_size))
    inputs, labels = split_window(windows)
    missing = per_rank * world_size - len(inputs)
    inputs = torch.nn.functional.pad(inputs, (0, 0, 0, missing), value=0)
    labels = torch.nn.functional.pad(labels, (0, 0, 0, missing), value=IGNORED)
    share = slice(rank * per_rank, (rank + 1) * per_rank)
    yield from zip(*(torch.split(part[share], micro_batch_size) for part in (inputs, labels)), strict=True)
