"""Loss on documents that training never sees: each source that holds some out is a validation set of its own.

Every rank runs the same number of micro-batches, however many samples there are: the last ones are filled up with
samples that do not count, because with sharded parameters a rank that stops early would leave the others waiting.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad

from tokenmill_core.manifest import Frozen
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_trainer.batches.data import tensors_of
from tokenmill_trainer.layout.sharding import release_parameters
from tokenmill_trainer.loss import IGNORED, token_loss_sum
from tokenmill_trainer.watching.metrics import bits_per_byte
from tokenmill_trainer.world import World


class ValidationConfig(Frozen):
    """How often and how much."""

    interval: int = Field(default=0, ge=0)
    """Steps between two validations; the last step has one too. 0: none at all."""
    samples: int = Field(default=64, gt=0)
    """Most held-out samples that are read of each source, evenly spread over all it has: the same ones every time, on
    any number of ranks."""


def validate(
    model: nn.Module,
    world: World,
    reader: MixtureReader,
    config: ValidationConfig,
    *,
    micro_batch_size: int,
    consumed_samples: int,
    byte_lengths: NDArray[np.int64] | None = None,
) -> dict[str, Any]:
    """`val_loss` and `val_loss_by_source`, the token mean of each source, in nats; the same in bits a byte. Collective.

    The whole weights the sources' tokens as the mixture does from sample `consumed_samples` on. A source without a
    held-out label is left out; where none of the others has a weight, `val_loss` is none. `byte_lengths` (V,) says how
    many bytes each token spells; none: not known, and neither are bits a byte.
    """
    found: dict[str, _HeldOut] = {}
    for name in reader.source_names:
        of_source = _held_out(model, world, reader, name, config.samples, micro_batch_size, byte_lengths)
        if of_source.tokens:
            found[name] = of_source
    release_parameters(model)
    weights = stage_weights(reader, consumed_samples)
    total = sum(weights[name] for name in found)
    losses = {name: of.nats / of.tokens for name, of in found.items()}
    lengths = {name: of.num_bytes / of.tokens for name, of in found.items()}
    # Of a token of the mixture.
    loss, length = (sum(weights[name] * of[name] for name in found) / max(total, 1) for of in (losses, lengths))
    return {
        "val_loss": loss if total else None,
        "val_loss_by_source": losses,
        "val_bits_per_byte": bits_per_byte(loss, length),
        "val_bits_per_byte_by_source": {name: bits_per_byte(of.nats, of.num_bytes) for name, of in found.items()},
    }


def stage_weights(reader: MixtureReader, consumed_samples: int) -> dict[str, int]:
    """The weight of each source in the stage that sample `consumed_samples` is of."""
    stage = bisect_right([stage.first for stage in reader.mixture.stages], consumed_samples) - 1
    names = (source.name for source in reader.manifest.sources)
    return dict(zip(names, reader.manifest.stages[stage].weights, strict=True))


class _HeldOut(NamedTuple):
    """Sums over the held-out labels of a source, of all ranks."""

    nats: float
    tokens: float
    num_bytes: float
    """0 where not known."""


@torch.no_grad()
def _held_out(
    model: nn.Module,
    world: World,
    reader: MixtureReader,
    name: str,
    max_samples: int,
    micro_batch_size: int,
    byte_lengths: NDArray[np.int64] | None,
) -> _HeldOut:
    total, tokens, num_bytes = torch.zeros((), dtype=torch.float64, device=world.device), 0, 0
    # Read before any rank computes: an error that one of them meets is raised on all.
    batches = world.on_each(
        lambda: list(rank_batches(reader, name, max_samples, micro_batch_size, world.rank, world.size))
    )
    for inputs, labels, positions in batches:
        counted = labels[labels != IGNORED]
        tokens += len(counted)
        num_bytes += 0 if byte_lengths is None else int(byte_lengths[counted.numpy()].sum())
        where = None if positions is None else positions.to(world.device)
        total += token_loss_sum(model, inputs.to(world.device), labels.to(world.device), where)
    return _HeldOut(*world.sum([total.item(), tokens, num_bytes]))


def rank_batches(
    reader: MixtureReader, name: str, max_samples: int, micro_batch_size: int, rank: int, world_size: int
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """This rank's micro-batches (inputs, labels, positions), each (micro_batch_size, L): as many on every rank.

    Together the ranks read `max_samples` held-out samples of source `name`, or all: evenly spread, since documents that
    lie together are often alike.
    """
    held_out = reader.num_validation(name)
    num_samples = min(max_samples, held_out)
    num_batches = math.ceil(num_samples / (micro_batch_size * world_size))
    for batch in range(rank * num_batches, (rank + 1) * num_batches):
        first = batch * micro_batch_size
        count = max(0, min(micro_batch_size, num_samples - first))
        numbers = [number * held_out // num_samples for number in range(first, first + count)]
        inputs, labels, positions = tensors_of(reader.validation(name, numbers))
        filled = partial(pad, pad=(0, 0, 0, micro_batch_size - count))
        yield filled(inputs), filled(labels, value=IGNORED), None if positions is None else filled(positions)
