"""What a run knows of its own course."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tokenmill_core.manifest import SkippedSamples
from tokenmill_trainer.guard.anomaly import Anomaly


@dataclass(frozen=True)
class Progress:
    """How far a run has come; with the weights and moments, all that is needed to go on."""

    step: int = 0
    consumed_samples: int = 0
    consumed_tokens: int = 0
    """Counted tokens of all steps, masked ones left out."""
    skipped: tuple[SkippedSamples, ...] = ()
    """Of the consumed samples, those that have not trained the weights."""

    @property
    def jumped_samples(self) -> int:
        """Consumed samples that were part of no step."""
        return sum(part.stop - part.first for part in self.skipped if part.step is None)


@dataclass(frozen=True)
class Tally:
    """What a step was made of, over all ranks."""

    loss_by_source: Mapping[str, float] = field(default_factory=dict)
    """Mean over the counted tokens of each source that had some, nats."""
    tokens_by_source: Mapping[str, int] = field(default_factory=dict)
    """Counted tokens of each source that had some."""
    num_bytes: int | None = None
    """Bytes of text that the counted tokens spell; none: not known."""
    memory_bytes: int = field(default=0, compare=False)
    """The most that the rank with the most has needed so far: of tensors on a GPU, of the process on a CPU."""
    memory_reserved_bytes: int | None = field(default=None, compare=False)
    """The most that a rank has taken from its GPU so far; none on a CPU."""


@dataclass(frozen=True)
class StepReport:
    """What one step did, the same on all ranks."""

    progress: Progress
    """After the step."""
    first_sample: int
    """Index of the first sample of its global batch."""
    loss: float
    """Mean over the global batch's counted tokens, nats; 0 where none counts."""
    grad_norm: float
    """2-norm of the gradient before clipping."""
    lr: float
    """Rate the weights were updated with."""
    tokens: int
    """Counted tokens of the step."""
    penalty: float = 0.0
    """What was minimised besides the loss: z-loss, and the losses of routers."""
    skipped: bool = False
    """Whether the weights were left as they were."""
    anomaly: Anomaly | None = None
    """What the guard found; none where all was well, or where the gradient only did not fit into fp16."""
    tally: Tally = Tally()
