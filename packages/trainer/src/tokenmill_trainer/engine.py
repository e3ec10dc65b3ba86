"""The engine: forward, backward and step over any layout, one micro-batch at a time.

    engine = initialize(config)
    for batch in engine.batches():
        loss = engine(batch)        this micro-batch's share of the global token mean
        engine.backward(loss)
        engine.step()               acts on the last micro-batch of a step, and returns its report

The loss of a step is the mean over the counted tokens of the whole global batch. Their number is known before the first
micro-batch runs, so shares simply add up, over micro-batches and over ranks, and so do their gradients.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Protocol, Self

import torch
import torch.distributed as dist
from torch import Tensor

from tokenmill_core.errors import ConfigError, TokenmillError
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_shards.open_samples import SamplesManifest
from tokenmill_shards.packing.reader import PackedReader
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_trainer.batches.agreed_steps import AgreedStep, agreed_steps
from tokenmill_trainer.batches.data import GlobalBatches, RankSamples
from tokenmill_trainer.batches.open_data import open_data, open_validation
from tokenmill_trainer.config import RunConfig, check_world_size, fitted
from tokenmill_trainer.layout.sharding import build_model, global_gradient_norm, prepare_backward, scale_gradients
from tokenmill_trainer.loss import training_loss_sums
from tokenmill_trainer.model import Decoder
from tokenmill_trainer.model.balance import forget_loads, update_biases
from tokenmill_trainer.optim import build_optimizer, learning_rate, set_learning_rate
from tokenmill_trainer.optim.ema import WeightAverage
from tokenmill_trainer.optim.loss_scale import LossScale
from tokenmill_trainer.report import Progress, StepReport
from tokenmill_trainer.world import World, start_world


class NonFiniteError(TokenmillError, ArithmeticError):
    """A loss or gradient is not a number: raised on every rank, before any weight has changed."""


class StepSource(Protocol):
    """Where the samples come from: `GlobalBatches`, or whatever yields this rank's part of each global batch."""

    def iterate(self, consumed_samples: int, num_steps: int) -> Iterator[RankSamples]:
        """`num_steps` steps from sample `consumed_samples` on."""
        ...


@dataclass(frozen=True)
class Batch:
    """One micro-batch, on the device."""

    inputs: Tensor
    """(samples, L) int64 token ids."""
    labels: Tensor
    """(samples, L) int64, the next tokens; `IGNORED` (-100) is not counted."""
    positions: Tensor | None
    """(samples, L) int32, the place of each input in its document; none: documents are joined."""
    first_sample: int
    """Index of the first sample of the global batch it belongs to."""
    global_tokens: int
    """Counted tokens of the whole global batch, over all ranks."""
    is_last: bool
    """Whether it closes its step."""


class Engine:
    """A model, its optimizer and its data on one rank of a world. Made by `initialize`; close it, or use `with`."""

    def __init__(self, config: RunConfig, world: World, model: Decoder, source: StepSource) -> None:
        self.config = config
        self.world = world
        self.model = model
        self.optimizer = build_optimizer(model, config.optimizer)
        self.average = WeightAverage(model, config.ema.decay) if config.ema.decay is not None else None
        self.loss_scale = LossScale() if config.training.precision == "fp16" else None
        self.progress = Progress()
        self.reader: MixtureReader | PackedReader | None = None
        self.validation_reader: MixtureReader | None = None
        self.mixture: LoadedManifest[SamplesManifest] | None = None
        """What is trained on, a mixture or a packed dataset; none: data of another making."""
        self._source = source
        self._resources = ExitStack()
        self._current: Batch | None = None
        self._loss = torch.zeros((), device=world.device)
        self._penalty = torch.zeros((), device=world.device)

    def batches(self) -> Iterator[Batch]:
        """The micro-batches of all steps that are left."""
        steps = self._source.iterate(self.progress.consumed_samples, self.steps_left)
        for step in agreed_steps(self.world, steps, self.steps_left, self.config.batch_plan):
            yield from self._micro_batches(step)

    @property
    def steps_left(self) -> int:
        """Steps still to come."""
        return self.config.training.steps - self.progress.step

    @property
    def samples_left(self) -> int:
        """Samples still to come, over all ranks."""
        consumed = self.progress.consumed_samples
        return self.config.batch_plan.after(consumed, self.steps_left) - consumed

    def _micro_batches(self, step: AgreedStep) -> Iterator[Batch]:
        samples, global_tokens = step
        size = self.config.training.micro_batch_size
        for begin in range(0, len(samples.inputs), size):
            rows, is_last = slice(begin, begin + size), begin + size >= len(samples.inputs)
            inputs, labels = self._on_device(samples.inputs[rows]), self._on_device(samples.labels[rows])
            positions = None if samples.positions is None else self._on_device(samples.positions[rows])
            yield Batch(inputs, labels, positions, samples.first_sample, global_tokens, is_last)

    def _on_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.world.device, non_blocking=True)

    def __call__(self, batch: Batch) -> Tensor:
        """The micro-batch's share of the step's loss, a scalar: sums over counted tokens / those of the global batch.

        The routers' losses are means over all tokens, so theirs is weighted by the micro-batch's share of the samples.
        """
        self._current = batch
        sums = training_loss_sums(self.model, batch.inputs, batch.labels, batch.positions, self.config.loss)
        loss, penalty = (part / max(batch.global_tokens, 1) for part in sums)
        auxiliary = self.model.auxiliary_loss()
        if auxiliary is not None:
            auxiliary = auxiliary * (len(batch.inputs) / self.config.batch_plan.size_at(batch.first_sample))
            loss, penalty = loss + auxiliary, penalty + auxiliary.detach()
        self._penalty += penalty
        return loss

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of `loss` to what the step has gathered."""
        assert self._current is not None, "backward() follows engine(batch)"
        prepare_backward(self.model, self.config.training.zero_stage, self._current.is_last)
        (loss if self.loss_scale is None else loss * self.loss_scale.scale).backward()  # type: ignore[no-untyped-call]
        self._loss += loss.detach()

    def step(self) -> StepReport | None:
        """After the last micro-batch: clip, update the weights, and report; before it, nothing.

        Errors: `NonFiniteError` on every rank where loss or gradient norm is not finite; no weight has changed then.
        """
        batch = self._current
        assert batch is not None, "step() follows backward()"
        if not batch.is_last:
            return None
        norm = self._gradient_norm()
        loss, penalty, num_spoilt = self.world.sum(
            [(self._loss - self._penalty).item(), self._penalty.item(), float(not norm.isfinite())]
        )
        if num_spoilt and norm.isfinite():
            norm = torch.full_like(norm, math.inf)  # replicas may differ, and the ranks decide alike
        skipped = self._is_overflow(loss, norm)
        lr = 0.0
        if not skipped:
            self._check_finite(batch, loss, norm.item())
            lr = self._update_weights(norm)
        self._forget_step()
        self.progress = self._advanced(batch)
        return StepReport(
            self.progress, batch.first_sample, loss, norm.item(), lr, batch.global_tokens, penalty, skipped
        )

    def _gradient_norm(self) -> Tensor:
        """The norm of the gradient, without the loss scale of fp16: one fp64 scalar, the same on all ranks."""
        norm = global_gradient_norm(self.model)
        if self.loss_scale is None:
            return norm
        scale_gradients(self.model, 1 / self.loss_scale.scale)
        return norm / self.loss_scale.scale

    def _is_overflow(self, loss: float, norm: Tensor) -> bool:
        """Whether the gradient did not fit into fp16, which a lower loss scale may cure: all ranks say the same."""
        if self.loss_scale is None or not math.isfinite(loss):
            return False
        overflow = not math.isfinite(norm.item())
        self.loss_scale.update(overflow)
        return overflow and not self.loss_scale.exhausted

    def _check_finite(self, batch: Batch, loss: float, norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            return
        self._forget_step()
        last = batch.first_sample + self.config.batch_plan.size_at(batch.first_sample) - 1
        raise NonFiniteError(
            f"step {self.progress.step + 1}: loss {loss}, gradient norm {norm}, on samples "
            f"{batch.first_sample} to {last}; the weights are still those of step {self.progress.step}: "
            "look at these samples with `pretrain trace`, or lower optimizer.lr, and go on with --resume"
        )

    def _update_weights(self, norm: Tensor) -> float:
        max_norm = self.config.training.max_grad_norm
        if max_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), max_norm, norm)
        lr = self._learning_rate()
        set_learning_rate(self.optimizer, lr)
        self.optimizer.step()
        update_biases(self.model.routers, dist.all_reduce)
        if self.average is not None:
            self.average.update()
        return lr

    def _learning_rate(self) -> float:
        """Of the step that is under way, from the samples consumed after it, in units of a full step.

        While the batch does not change these are whole numbers of steps. The run is as long as what is consumed and
        what is to come, so that a rate is right too where a run goes on with another batch size.
        """
        config, plan, consumed = self.config, self.config.batch_plan, self.progress.consumed_samples
        tokens = config.schedule.warmup_tokens
        warmup = plan.after(0, config.schedule.warmup_steps) if tokens is None else tokens / config.data.sequence_length
        lengths = (plan.after(consumed, 1), plan.after(consumed, self.steps_left), warmup)
        after, total, warmup = (length / plan.final_size for length in lengths)
        return learning_rate(after, total, warmup, config.optimizer.lr, config.schedule)

    def _forget_step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        forget_loads(self.model.routers)
        self._loss.zero_()
        self._penalty.zero_()
        self._current = None

    def _advanced(self, batch: Batch) -> Progress:
        before = self.progress
        return Progress(
            step=before.step + 1,
            consumed_samples=self.config.batch_plan.after(before.consumed_samples, 1),
            consumed_tokens=before.consumed_tokens + batch.global_tokens,
        )

    def close(self) -> None:
        """Leave the process group, if `initialize` joined it."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def initialize(config: RunConfig, source: StepSource | None = None) -> Engine:
    """An engine at step 0: process group, mesh, model with its start weights, optimizer and data.

    Every process of a torchrun start calls this; without torchrun the one process is a world of its own. `source`
    replaces the mixture of `config.data`, and `config.model.vocab_size` must then be given.

    Errors: `ConfigError` where settings do not fit each other, the mixture or the number of ranks; `ManifestError` and
    `VerificationError` where the mixture or its shards are not what their manifests say.
    """
    with ExitStack() as resources:
        world = resources.enter_context(start_world())
        check_world_size(config, world.size)
        torch.manual_seed(config.training.seed + world.rank)
        reader, mixture = None, None
        if source is None:
            mixture, reader = open_data(config, world)
            config = fitted(config, mixture.manifest)
            source = GlobalBatches(
                reader,
                config.batch_plan,
                world.rank,
                world.size,
                config.data.num_workers,
                pin_memory=world.device.type == "cuda",
                vocab_size=reader.manifest.vocab_size,
            )
        engine = Engine(config, world, _build_model(config, world), source)
        engine.reader, engine.mixture = reader, mixture
        if reader is not None and mixture is not None:
            engine.validation_reader = world.on_each(partial(open_validation, config, mixture, reader))
        engine._resources = resources.pop_all()
    return engine


def _build_model(config: RunConfig, world: World) -> Decoder:
    training = config.training
    if config.model.vocab_size is None:
        raise ConfigError("model.vocab_size: must be given where the data is not a mixture")
    return build_model(
        config.model,
        world,
        seed=training.seed,
        zero_stage=training.zero_stage,
        precision=training.precision,
        compile_blocks=training.compile,
    )
