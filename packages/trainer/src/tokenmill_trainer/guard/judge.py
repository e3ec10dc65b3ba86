"""Whether a step's numbers can be trusted: they are finite, and not far above those of the steps before.

    loss, norm ─┬ not finite ─────────────────────────────▶ guard.non_finite
                ├ > mean + spike_factor · σ of the window ─▶ guard.spike        ─ more than max_skips ─▶ stop
                └ otherwise ──────────────────────────────▶ the step is done

σ is the sample standard deviation over the last `window` steps, of loss and norm each, as in OLMo 2 (arXiv:2501.00656).
A value above its limit enters the window as the limit: one outlier does not blind the rule to the next, while a level
that stays is learnt within some steps. Values that are all equal say nothing about how far they scatter: nothing is a
spike then, and the next enters as it is. All ranks have the same numbers, so they decide alike without asking.
"""

import math
from collections import deque
from typing import Literal

import numpy as np
import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from tokenmill_core.manifest import Frozen
from tokenmill_trainer.guard.anomaly import Action, Anomaly, AnomalyKind

MAX_WINDOW = 1024
FLAT = 1e-6
"""Values whose σ is no larger a share of their mean are equal: they are computed in fp32, which rounds by 6e-8."""


class GuardConfig(Frozen):
    """What is done about steps whose loss or gradient is no number or spikes, and about a run that hangs."""

    model_config = ConfigDict(allow_inf_nan=False)

    non_finite: Literal["stop", "skip", "rollback"] = "stop"
    """Where loss or gradient norm is NaN or infinite: end the run, leave the step out, or go back to a checkpoint."""
    spike: Literal["note", "stop", "skip", "rollback"] = "note"
    """Where one of them lies far above the last steps: the same, or only write it into events.jsonl."""
    spike_factor: float = Field(default=6.0, gt=0)
    """A spike is more than this many standard deviations above the mean of the last steps."""
    window: int = Field(default=128, ge=2, le=MAX_WINDOW)
    """Steps that mean and deviation are taken over."""
    min_history: int = Field(default=64, ge=2)
    """Steps before which nothing is called a spike."""
    max_skips: int = Field(default=10, ge=0)
    """Steps left out or rolled back among the last `window`; one more ends the run."""
    skip_after: int = Field(default=200, ge=0)
    """Batches that a rollback leaves out after the one that spiked."""
    hang_seconds: float = Field(default=300.0, ge=0)
    """A rank that gets no further for so long ends with its stacks (six times as long in saving, validation and
    compilation); 0: never."""


class Judge:
    """Judges each step, and remembers what it has to: the same steps give the same judgements."""

    def __init__(self, config: GuardConfig) -> None:
        self.config = config
        self._window: deque[tuple[float, float]] = deque(maxlen=config.window)
        """(loss, norm) of the last steps, none above its limit."""
        self.acted: list[int] = []
        """Steps that were left out or rolled back, of the last `window`."""

    def judge(self, step: int, samples: range, loss: float, grad_norm: float) -> Anomaly | None:
        """What is wrong with step `step`, and what is to be done; none where all is well."""
        config, limits = self.config, self._limits()
        finite = math.isfinite(loss) and math.isfinite(grad_norm)
        if finite:
            self._window.append((min(loss, limits[0]), min(grad_norm, limits[1])))
        if finite and loss <= limits[0] and grad_norm <= limits[1]:
            return None
        kind = AnomalyKind.SPIKE if finite else AnomalyKind.NON_FINITE
        action = Action(config.spike if finite else config.non_finite)
        remedy = f"look at these samples (their documents are in events.jsonl), lower optimizer.lr or set guard.{kind}"
        if action in (Action.SKIP, Action.ROLLBACK):
            self.acted = [*(one for one in self.acted if one > step - config.window), step]
            if len(self.acted) > config.max_skips:
                action = Action.STOP
                remedy = (
                    f"of the last {config.window} steps, {len(self.acted)} would be left out and guard.max_skips is "
                    f"{config.max_skips}: lower optimizer.lr, look at the documents in events.jsonl, or raise it"
                )
        return Anomaly(kind, action, step, samples, loss, grad_norm, *limits, remedy)

    def _limits(self) -> tuple[float, float]:
        """Of loss and norm."""
        if len(self._window) < min(self.config.min_history, self.config.window):
            return math.inf, math.inf
        values = np.array(self._window)
        mean, deviation = values.mean(0), values.std(0, ddof=1)
        limits = mean + self.config.spike_factor * deviation
        loss, norm = np.where(deviation > FLAT * abs(mean), limits, math.inf)
        return float(loss), float(norm)

    def state(self) -> Tensor:
        """All of it for a checkpoint, (3, MAX_WINDOW) fp64 whatever the settings: losses, norms, steps acted on.

        What is left of it is infinite.
        """
        state = torch.full((3, MAX_WINDOW), math.inf, dtype=torch.float64)
        if self._window:
            state[:2, : len(self._window)] = torch.tensor(list(self._window), dtype=torch.float64).T
        acted = self.acted[-MAX_WINDOW:]
        state[2, : len(acted)] = torch.tensor(acted, dtype=torch.float64)
        return state

    def restore(self, state: Tensor) -> None:
        """Go on from what `state` gave."""
        losses, norms, acted = ([value for value in row if math.isfinite(value)] for row in state.tolist())
        self._window = deque(zip(losses, norms, strict=True), maxlen=self.config.window)
        self.acted = [int(step) for step in acted]
