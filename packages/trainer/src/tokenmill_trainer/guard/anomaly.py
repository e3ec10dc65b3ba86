"""What the guard calls a step whose numbers are not what a step's numbers are like, and what it does about it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tokenmill_core.errors import TokenmillError


class Action(StrEnum):
    """What becomes of such a step."""

    STOP = "stop"
    """The run ends; the weights are those before the step."""
    SKIP = "skip"
    """Nothing is updated; the samples count as consumed."""
    ROLLBACK = "rollback"
    """The newest verified checkpoint is restored, and the samples from there past the step are left out."""
    NOTE = "note"
    """The step is like any other; only the event is recorded."""


class AnomalyKind(StrEnum):
    """What is wrong with the numbers."""

    NON_FINITE = "non_finite"
    """The loss or the gradient's norm is NaN or infinite."""
    SPIKE = "spike"
    """One of them lies far above those of the steps before."""


class GuardError(TokenmillError, ArithmeticError):
    """A step's numbers end the run: raised on every rank, before any weight has changed."""

    def __init__(self, message: str, anomaly: "Anomaly | None" = None) -> None:
        super().__init__(message)
        self.anomaly = anomaly
        """The step, where a training step was at fault."""


class NonFiniteError(GuardError):
    """A loss, gradient or weight is not a number."""


@dataclass(frozen=True)
class Anomaly:
    """A step that the guard has found, and what it decided: the same on all ranks."""

    kind: AnomalyKind
    action: Action
    step: int
    samples: range
    """Global indices of its batch."""
    loss: float
    grad_norm: float
    max_loss: float
    """What the loss was allowed to be; infinite while there is too little history."""
    max_grad_norm: float
    remedy: str = ""
    """For a person, where the run ends."""

    def error(self) -> GuardError:
        """The error that ends the run."""
        kind = NonFiniteError if self.kind is AnomalyKind.NON_FINITE else GuardError
        return kind(f"{self}; the weights are those before this step: {self.remedy}, and go on with --resume", self)

    def __str__(self) -> str:
        numbers = f"loss {self.loss}, gradient norm {self.grad_norm}"
        if self.kind is AnomalyKind.SPIKE:
            limits = [
                f"{name} {value:.5g} is above {limit:.5g}"
                for name, value, limit in (
                    ("loss", self.loss, self.max_loss),
                    ("gradient norm", self.grad_norm, self.max_grad_norm),
                )
                if value > limit
            ]
            numbers = " and ".join(limits)
        return f"step {self.step}: {numbers}, on samples {self.samples.start} to {self.samples.stop - 1}"

    def record(self) -> dict[str, Any]:
        """As one object of `events.jsonl`; numbers that JSON does not know are text, such as `nan`."""
        numbers = {
            "loss": self.loss,
            "grad_norm": self.grad_norm,
            "max_loss": self.max_loss,
            "max_grad_norm": self.max_grad_norm,
        }
        return {
            "kind": str(self.kind),
            "action": str(self.action),
            "step": self.step,
            "first_sample": self.samples.start,
            "last_sample": self.samples.stop - 1,
            **numbers,
        }
