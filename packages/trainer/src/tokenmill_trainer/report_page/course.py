"""How a run went: its metrics read once, from the first line to the last, however many there are.

metrics.jsonl ─▶ each row ─▶ curves of training, curves of validation, the run's last and best figures
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenmill_trainer.report_page.curves import Curves
from tokenmill_trainer.watching.step_log import each_step

LAST_STEPS = 20
"""Over so many steps the loss at the end is a mean, here and in what `pretrain run` says when it is done."""
PLACE_FIELDS = frozenset({"step", "first_sample", "consumed_samples", "consumed_tokens"})
VALIDATION = "val_"
"""What the names of fields of validation begin with; they stand in few rows, and get points of their own."""


@dataclass
class Course:
    """What a run's metrics say."""

    training: Curves = field(default_factory=Curves)
    validation: Curves = field(default_factory=Curves)
    step: int = 0
    tokens: int = 0
    world_size: int | None = None
    """Ranks of the last step."""
    num_skipped: int = 0
    """Steps that left the weights as they were."""
    best: tuple[float, int] | None = None
    """Lowest validation loss, and the step after which it was measured."""
    last_validation: tuple[float, int] | None = None
    _counted: int = 0
    _seconds: float = 0.0
    _last: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=LAST_STEPS))

    def add(self, row: dict[str, Any]) -> None:
        """Take in the object of one step; of its fields any may be missing."""
        step, tokens = row["step"], int(_number(row.get("consumed_tokens")) or 0)
        trained: dict[str, Any] = {}
        validated: dict[str, Any] = {}
        for name, value in row.items():
            if name not in PLACE_FIELDS:
                (validated if name.startswith(VALIDATION) else trained)[name] = value
        self.training.add(step, tokens, trained)
        if validated:
            self.validation.add(step, tokens, validated)
            self._validate(step, _number(validated.get("val_loss")))
        counted = tokens - self.tokens
        self._keep_speed(counted, _number(row.get("tokens_per_second")))
        self._keep_loss(counted, _number(row.get("loss")))
        self.step, self.tokens = step, tokens
        self.world_size = row.get("world_size", self.world_size)
        self.num_skipped += row.get("skipped") is True

    def _validate(self, step: int, loss: float | None) -> None:
        if loss is not None:
            self.last_validation = (loss, step)
            self.best = min(self.best or self.last_validation, self.last_validation)

    def _keep_speed(self, counted: int, tokens_per_second: float | None) -> None:
        # The first step has much to prepare and says nothing of the rest.
        if self.step and tokens_per_second:
            self._counted += counted
            self._seconds += counted / tokens_per_second

    def _keep_loss(self, counted: int, loss: float | None) -> None:
        if loss is not None:
            self._last.append((counted, loss))

    @property
    def num_last(self) -> int:
        """Steps that `loss` is a mean of."""
        return len(self._last)

    @property
    def loss(self) -> float | None:
        """Token mean of the last steps, nats; none where there is no loss."""
        tokens = sum(counted for counted, _ in self._last)
        return sum(counted * loss for counted, loss in self._last) / tokens if tokens else None

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of all steps but the first over their time, without validation and checkpoints."""
        return self._counted / self._seconds if self._seconds else None


def read_course(metrics_file: Path, tell: Callable[[str], None] | None = None) -> Course:
    """The course of the run that writes `metrics_file`; empty where it has not come to its first step.

    `tell` gets what is wrong with a line that cannot be read; without it that is an `InputError`.
    """
    course = Course()
    for row in each_step(metrics_file, tell):
        course.add(row)
    course.training.finish()
    course.validation.finish()
    return course


def _number(value: Any) -> float | None:
    return value if type(value) in (int, float) else None
