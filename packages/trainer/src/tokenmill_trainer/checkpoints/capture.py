"""The state of a run at one instant, which no later step can change.

    engine ─ capture ─▶ Snapshot: tensors copied to the host, random state, progress, ledger, settings ─▶ writing.py

Copies go into buffers that are used again for each save, so that only the first pays for fresh memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.tensor import DTensor

from tokenmill_core.manifest import InputRef, SourceUse
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_shards.open_samples import SamplesManifest
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.engine import Engine
from tokenmill_trainer.guard.anomaly import NonFiniteError
from tokenmill_trainer.guard.buffers import persistent_buffers
from tokenmill_trainer.layout.sharding import release_parameters
from tokenmill_trainer.model import Decoder
from tokenmill_trainer.report import Progress

FLATTENED = StateDictOptions(flatten_optimizer_state_dict=True)

Sections = dict[str, dict[str, Any]]
"""Tensors by section ("model", "optimizer", "ema", "loss_scale") and name, as they lie on this rank."""


@dataclass(frozen=True)
class Snapshot:
    """All that a run needs to go on, as it was on this rank after a step."""

    tensors: Sections
    random_state: dict[str, Tensor]
    """Of this rank's generators, by device type."""
    progress: Progress
    config: RunConfig
    mixture: LoadedManifest[SamplesManifest] | None
    initial_model: InputRef | None
    """The model whose weights the run started from, by its absolute place."""
    own_model: bool
    """Whether the model is a module of the user's own, which no setting describes."""
    sources: tuple[SourceUse, ...]
    """What was drawn from each source so far."""


class HostCopies:
    """Copies of tensors in host memory, in the same buffers each time: a copy is good until the next one is made."""

    def __init__(self, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        options = StagingOptions(
            use_pinned_memory=on_gpu, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=on_gpu
        )
        self._stager = DefaultStager(options)

    def __call__(self, sections: Sections) -> Sections:
        """`sections` with the values they have now."""
        return cast(Sections, self._stager.stage(sections))

    def close(self) -> None:
        """Let the buffers go."""
        self._stager.close()


def capture(engine: Engine, copied: Callable[[Sections], Sections] = lambda sections: sections) -> Snapshot:
    """The engine's state now. Collective.

    Without `copied` its tensors are the engine's own, which the next step changes. Errors: `NonFiniteError` on every
    rank where the weights hold NaN or infinity, or buffers NaN: every checkpoint is one that a run can go on from.
    """
    progress = engine.progress
    if engine.world.any(not _all_finite(_local_weights(engine)) or _any_nan(persistent_buffers(engine.model))):
        raise NonFiniteError(
            f"step {progress.step}: the weights hold NaN or infinity, or buffers NaN, and are not saved; go on "
            "from the last checkpoint with --resume and a lower optimizer.lr (--allow-change schedule)"
        )
    return Snapshot(
        tensors=copied(tensors(engine)),
        random_state=_random_state(engine.world.device),
        progress=progress,
        config=engine.config,
        mixture=engine.mixture,
        initial_model=engine.initial_model,
        own_model=not isinstance(engine.model, Decoder),
        sources=engine.reader.use(progress.consumed_samples) if engine.reader else (),
    )


def tensors(engine: Engine) -> Sections:
    """Weights, moments and average by name, as they lie on this rank. Settings of the optimizer are not state."""
    release_parameters(engine.model)
    optimizer = get_optimizer_state_dict(engine.model, engine.optimizer, options=FLATTENED)
    sections: Sections = {
        "model": get_model_state_dict(engine.model),
        "optimizer": {name: value for name, value in optimizer.items() if isinstance(value, Tensor)},
    }
    if engine.average is not None:
        sections["ema"] = dict(engine.average.tensors)
    if engine.loss_scale is not None:
        sections["loss_scale"] = {"state": engine.loss_scale.state()}
    sections["guard"] = {"state": engine.judge.state()}
    return sections


def _local_weights(engine: Engine) -> list[Tensor]:
    weights = [parameter.detach() for parameter in engine.model.parameters()]
    return [weight.to_local() if isinstance(weight, DTensor) else weight for weight in weights]


def _all_finite(values: list[Tensor]) -> bool:
    """Sums first: one that is finite proves it, at a fortieth of the cost of looking at each value."""
    if bool(torch.stack([value.sum() for value in values]).isfinite().all()):
        return True
    return all(bool(value.isfinite().all()) for value in values)  # finite values can have a sum that is not


def _any_nan(buffers: dict[str, Tensor]) -> bool:
    """Infinity may stand in a buffer for good, such as a mask."""
    return any(bool(buffer.isnan().any()) for buffer in buffers.values())


def _random_state(device: torch.device) -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    return {**state, "cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else state
