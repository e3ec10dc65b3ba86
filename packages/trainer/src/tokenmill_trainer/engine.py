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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from tokenmill_core.manifest import InputRef, SkippedSamples, SkipReason
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_shards.open_samples import SamplesManifest
from tokenmill_shards.packing.reader import PackedReader
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_trainer.batches.agreed_steps import agreed_steps
from tokenmill_trainer.batches.data import RankSamples
from tokenmill_trainer.batches.micro_batches import Batch, micro_batches
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.guard.anomaly import Action, Anomaly
from tokenmill_trainer.guard.buffers import HeldBuffers
from tokenmill_trainer.guard.judge import Judge
from tokenmill_trainer.layout.gradients import global_gradient_norm, scale_gradients
from tokenmill_trainer.layout.sharding import finish_backward, prepare_backward, replicas
from tokenmill_trainer.loss import LossSums
from tokenmill_trainer.model import Decoder
from tokenmill_trainer.model.balance import forget_loads, update_biases
from tokenmill_trainer.model.router import Router
from tokenmill_trainer.optim import build_optimizer, set_learning_rate
from tokenmill_trainer.optim.ema import WeightAverage
from tokenmill_trainer.optim.loss_scale import LossScale
from tokenmill_trainer.rate import rate_of_next_step
from tokenmill_trainer.report import Progress, StepReport, Tally
from tokenmill_trainer.watching.tally import StepTally
from tokenmill_trainer.watching.timing import Phase, StepClock, timed
from tokenmill_trainer.world import World


class StepSource(Protocol):
    """Where the samples come from: `GlobalBatches`, or whatever yields this rank's part of each global batch."""

    def iterate(self, consumed_samples: int, num_steps: int) -> Iterator[RankSamples]:
        """`num_steps` steps from sample `consumed_samples` on."""
        ...


SumLosses = Callable[[nn.Module, Tensor, Tensor, Tensor | None], LossSums]
"""Model, inputs, labels and positions, each (B, L), to the losses summed over the counted labels."""


class Engine:
    """A model, its optimizer and its data on one rank of a world. Made by `initialize`; close it, or use `with`."""

    def __init__(
        self,
        config: RunConfig,
        world: World,
        model: nn.Module,
        source: StepSource,
        sum_losses: SumLosses,
        source_names: Sequence[str] = (),
    ) -> None:
        self.config = config
        self.world = world
        self.model = model
        self.optimizer = build_optimizer(model, config.optimizer, replicas(model))
        self.average = WeightAverage(model, config.ema.decay) if config.ema.decay is not None else None
        self.loss_scale = LossScale(config.loss_scale) if config.training.precision == "fp16" else None
        self.judge = Judge(config.guard)
        self.progress = Progress()
        self.clock = StepClock.of(world.device)
        self.reader: MixtureReader | PackedReader | None = None
        self.validation_reader: MixtureReader | None = None
        self.mixture: LoadedManifest[SamplesManifest] | None = None
        """What is trained on, a mixture or a packed dataset; none: data of another making."""
        self.initial_model: InputRef | None = None
        """The model whose weights the run started from, by its absolute place; none: random ones."""
        self.on_phase: Callable[[str], None] = lambda phase: None
        """Told what this rank begins to do, for whoever watches over it."""
        self.byte_lengths: NDArray[np.int64] | None = None
        """(V,) Bytes that each token spells; none: not known."""
        self._tally = StepTally(source_names, world)
        self._source = source
        self._sum_losses = sum_losses
        self._buffers = HeldBuffers(model)
        self._moves = 0
        self._resources = ExitStack()
        self._current: Batch | None = None
        self._loss = torch.zeros((), device=world.device)
        self._penalty = torch.zeros((), device=world.device)

    def batches(self) -> Iterator[Batch]:
        """The micro-batches of all steps that are left; after `move_to` those that are left then."""
        return self.clock.each(Phase.DATA, self._all_batches())

    def _all_batches(self) -> Iterator[Batch]:
        moves, size = None, self.config.training.micro_batch_size
        while moves != self._moves:
            moves = self._moves
            steps = self._source.iterate(self.progress.consumed_samples, self.steps_left)
            agreed = agreed_steps(self.world, steps, self.steps_left, self.config.batch_plan, self.on_phase)
            with closing(agreed):
                while moves == self._moves and (step := next(agreed, None)) is not None:
                    yield from micro_batches(step, size, self.world.device)

    def move_to(self, progress: Progress) -> None:
        """Go on from `progress`: whatever else belongs to it is in place."""
        self.progress = progress
        self._moves += 1

    @property
    def steps_left(self) -> int:
        """Steps still to come."""
        return self.config.training.steps - self.progress.step

    @property
    def samples_left(self) -> int:
        """Samples still to come, over all ranks."""
        consumed = self.progress.consumed_samples
        return self.config.batch_plan.after(consumed, self.steps_left) - consumed

    @timed(Phase.FORWARD)
    def __call__(self, batch: Batch) -> Tensor:
        """The micro-batch's share of the step's loss, a scalar: sums over counted tokens / those of the global batch.

        The routers' losses are means over all tokens, so theirs is weighted by the micro-batch's share of the samples.
        """
        self.on_phase("forward")
        if self._current is None:
            self._buffers.hold()
        self._current = batch
        sums = self._sum_losses(self.model, batch.inputs, batch.labels, batch.positions)
        self._tally.add(batch, sums.by_token)
        loss, penalty = (part / max(batch.global_tokens, 1) for part in (sums.total, sums.z_loss))
        auxiliary = self._auxiliary_loss()
        if auxiliary is not None:
            auxiliary = auxiliary * (len(batch.inputs) / self.config.batch_plan.size_at(batch.first_sample))
            loss, penalty = loss + auxiliary, penalty + auxiliary.detach()
        self._penalty += penalty
        return loss

    def _auxiliary_loss(self) -> Tensor | None:
        """What the model adds to the loss, such as its routers': a mean over tokens. Most have nothing."""
        own: Callable[[], Tensor | None] | None = getattr(self.model, "auxiliary_loss", None)
        return None if own is None else own()

    @property
    def routers(self) -> list[Router]:
        """Those whose loads the engine keeps even: of a `Decoder` with experts."""
        return self.model.routers if isinstance(self.model, Decoder) else []

    @timed(Phase.BACKWARD)
    def backward(self, loss: Tensor) -> None:
        """Add the gradient of `loss` to what the step has gathered."""
        assert self._current is not None, "backward() follows engine(batch)"
        self.on_phase("backward")
        prepare_backward(self.model, self.config.training, self._current.is_last)
        (loss if self.loss_scale is None else loss * self.loss_scale.scale).backward()  # type: ignore[no-untyped-call]
        finish_backward(self.model)
        self._loss += loss.detach()

    @timed(Phase.OPTIMIZER)
    def step(self) -> StepReport | None:
        """After the last micro-batch: judge it, clip, update the weights, and report; before it, nothing.

        Errors: `GuardError` on every rank where the guard ends the run; no weight and no buffer has changed then.
        """
        batch = self._current
        assert batch is not None, "step() follows backward()"
        if not batch.is_last:
            return None
        self.on_phase("step")
        loss, penalty, norm, tally = self._agreed_numbers(batch)
        overflow = self._is_overflow(loss, norm)
        anomaly = None if overflow else self._judge(batch, loss, norm)
        skipped = overflow or (anomaly is not None and anomaly.action is not Action.NOTE)
        lr = self._leave_out() if skipped else self._update_weights(norm)
        self._forget_step()
        if anomaly is not None and anomaly.action is Action.STOP:
            raise anomaly.error()
        reason: SkipReason = "overflow" if anomaly is None else anomaly.kind.value
        self.progress = self._advanced(batch, reason if skipped else None)
        return StepReport(
            self.progress, batch.first_sample, loss, norm, lr, batch.global_tokens, penalty, skipped, anomaly, tally
        )

    def _agreed_numbers(self, batch: Batch) -> tuple[float, float, float, Tally]:
        """(loss, penalty, gradient norm, tally) of the step, the very same on all ranks. Collective.

        Every rank computes the norm; that of rank 0 is taken, or infinity where another's is not finite.
        """
        norm = self._gradient_norm()
        own = [(self._loss - self._penalty).item(), self._penalty.item(), norm if self.world.is_main else 0.0]
        sums = self.world.sum([*own, float(not math.isfinite(norm)), *self._tally.values(batch)])
        loss, penalty, agreed, num_spoilt, *tallied = sums
        if num_spoilt and math.isfinite(agreed):
            agreed = math.inf
        return loss, penalty, agreed, self._tally.read(tallied)

    def _gradient_norm(self) -> float:
        """The norm of the gradient, without the loss scale of fp16."""
        norm = global_gradient_norm(self.model).item()
        if self.loss_scale is None:
            return norm
        scale_gradients(self.model, 1 / self.loss_scale.scale)
        return norm / self.loss_scale.scale

    def _is_overflow(self, loss: float, norm: float) -> bool:
        """Whether the gradient did not fit into fp16, which a lower loss scale may cure: all ranks say the same."""
        if self.loss_scale is None or not math.isfinite(loss):
            return False
        overflow = not math.isfinite(norm)
        self.loss_scale.update(overflow)
        return overflow and not self.loss_scale.exhausted

    def _judge(self, batch: Batch, loss: float, norm: float) -> Anomaly | None:
        samples = range(batch.first_sample, self.config.batch_plan.after(batch.first_sample, 1))
        return self.judge.judge(self.progress.step + 1, samples, loss, norm)

    def _update_weights(self, norm: float) -> float:
        max_norm = self.config.training.max_grad_norm
        if 0 < max_norm < norm:
            total = torch.tensor(norm, dtype=torch.float64, device=self.world.device)
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), max_norm, total)
        lr = rate_of_next_step(self.config, self.progress)
        set_learning_rate(self.optimizer, lr)
        self.optimizer.step()
        update_biases(self.routers, dist.all_reduce)
        if self.average is not None:
            self.average.update()
        return lr

    def _leave_out(self) -> float:
        """All stays as it was before the step, what the forwards have changed included."""
        self._buffers.put_back()
        return 0.0

    def _forget_step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        forget_loads(self.routers)
        self._loss.zero_()
        self._penalty.zero_()
        self._tally.forget()
        self._current = None

    def _advanced(self, batch: Batch, skipped: SkipReason | None) -> Progress:
        before, step = self.progress, self.progress.step + 1
        consumed = self.config.batch_plan.after(before.consumed_samples, 1)
        untrained = before.skipped
        if skipped is not None:
            untrained += (SkippedSamples(first=before.consumed_samples, stop=consumed, step=step, reason=skipped),)
        return Progress(step, consumed, before.consumed_tokens + batch.global_tokens, untrained)

    def close(self) -> None:
        """Leave the process group, if `initialize` joined it."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
