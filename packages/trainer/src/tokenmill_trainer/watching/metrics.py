"""What each step is measured by: the objects of `metrics.jsonl`."""

import time
from typing import Any

from pydantic import ConfigDict, Field

from tokenmill_core.manifest import Frozen
from tokenmill_trainer.report import StepReport
from tokenmill_trainer.watching.profiling import StepWindow


class LoggingConfig(Frozen):
    """What is shown and how it is measured."""

    model_config = ConfigDict(allow_inf_nan=False)

    interval: int = Field(default=10, gt=0)
    """Steps between two lines on the console; the metrics file has every step."""
    peak_flops: float | None = Field(default=None, gt=0)
    """FLOP/s of one device, for `mfu`; none: the vendor's figure for a known GPU, otherwise `mfu` is null."""
    profile: StepWindow | None = None
    """Steps that torch.profiler records, `FIRST:LAST`, such as "10:15"; none: no profile."""


class StepMeter:
    """Turns step reports into metrics: adds time, and what follows from it."""

    def __init__(self, flops_per_token: float, peak_flops: float | None, world_size: int) -> None:
        self._flops_per_token = flops_per_token
        self._peak = peak_flops * world_size if peak_flops else None
        self._world_size = world_size
        self._last = time.perf_counter()

    def restart(self) -> None:
        """Begin a step now: what came before, such as validation or a checkpoint, is not training time."""
        self._last = time.perf_counter()

    def metrics(self, report: StepReport) -> dict[str, Any]:
        """One object of `metrics.jsonl`."""
        now = time.perf_counter()
        tokens_per_second = report.tokens / (now - self._last)
        self._last = now
        mfu = tokens_per_second * self._flops_per_token / self._peak if self._peak else None
        return {
            "step": report.progress.step,
            "consumed_samples": report.progress.consumed_samples,
            "consumed_tokens": report.progress.consumed_tokens,
            "world_size": self._world_size,
            "loss": report.loss if report.tokens else None,
            "penalty": report.penalty,
            "skipped": report.skipped,
            "grad_norm": report.grad_norm,
            "lr": report.lr,
            "tokens_per_second": round(tokens_per_second, 1),
            "mfu": mfu,
        }
