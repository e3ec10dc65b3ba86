"""Loss on documents that training never sees: each source that holds some out is a validation set of its own.

Every rank runs the same number of micro-batches, however many samples there are: the last ones are filled up with
samples that do not count, because with sharded parameters a rank that stops early would leave the others waiting.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad

from tokenmill_core.manifest import Frozen
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_trainer.batches.data import tensors_of
from tokenmill_trainer.layout.sharding import release_parameters
from tokenmill_trainer.loss import IGNORED, token_loss_sum
from tokenmill_trainer.world import World


class ValidationConfig(Frozen):
    """How often and how much."""

    interval: int = Field(default=0, ge=0)
    """Steps between two validations; the last step has one too. 0: none at all."""
    samples: int = Field(default=64, gt=0)
    """Most held-out samples that are read of each source: the same ones every time, on any number of ranks."""


def validate(
    model: nn.Module,
    world: World,
    reader: MixtureReader,
    config: ValidationConfig,
    *,
    micro_batch_size: int,
    consumed_samples: int,
) -> dict[str, Any]:
    """`val_loss` and `val_loss_by_source`, the token mean of each source, in nats. Collective.

    `val_loss` weights the sources as the mixture does from sample `consumed_samples` on. A source without a held-out
    label is left out; where none of the others has a weight, `val_loss` is none.
    """
    losses: dict[str, float] = {}
    for source in reader.manifest.sources:
        loss = _token_mean(model, world, reader, source.name, config.samples, micro_batch_size)
        if loss is not None:
            losses[source.name] = loss
    release_parameters(model)
    weights = stage_weights(reader, consumed_samples)
    total = sum(weights[name] for name in losses)
    mean = sum(weights[name] * loss for name, loss in losses.items()) / total if total else None
    return {"val_loss": mean, "val_loss_by_source": losses}


def stage_weights(reader: MixtureReader, consumed_samples: int) -> dict[str, int]:
    """The weight of each source in the stage that sample `consumed_samples` is of."""
    stage = bisect_right([stage.first for stage in reader.mixture.stages], consumed_samples) - 1
    names = (source.name for source in reader.manifest.sources)
    return dict(zip(names, reader.manifest.stages[stage].weights, strict=True))


@torch.no_grad()
def _token_mean(
    model: nn.Module, world: World, reader: MixtureReader, name: str, max_samples: int, micro_batch_size: int
) -> float | None:
    total, counted = torch.zeros((), dtype=torch.float64), 0
    # Read before any rank computes: an error that one of them meets is raised on all.
    batches = world.on_each(
        lambda: list(rank_batches(reader, name, max_samples, micro_batch_size, world.rank, world.size))
    )
    for inputs, labels, positions in batches:
        counted += int((labels != IGNORED).sum())
        where = None if positions is None else positions.to(world.device)
        total += token_loss_sum(model, inputs.to(world.device), labels.to(world.device), where).double().cpu()
    total_everywhere, counted_everywhere = world.sum([total.item(), counted])
    return total_everywhere / counted_everywhere if counted_everywhere else None


def rank_batches(
    reader: MixtureReader, name: str, max_samples: int, micro_batch_size: int, rank: int, world_size: int
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """This rank's micro-batches (inputs, labels, positions), each (micro_batch_size, L): as many on every rank.

    Together the ranks read each held-out sample of source `name` once, up to `max_samples`.
    """
    num_samples = min(max_samples, reader.num_validation(name))
    num_batches = math.ceil(num_samples / (micro_batch_size * world_size))
    for batch in range(rank * num_batches, (rank + 1) * num_batches):
        first = batch * micro_batch_size
        count = max(0, min(micro_batch_size, num_samples - first))
        inputs, labels, positions = tensors_of(reader.validation(name, first, count))
        filled = partial(pad, pad=(0, 0, 0, micro_batch_size - count))
        yield filled(inputs), filled(labels, value=IGNORED), None if positions is None else filled(positions)
