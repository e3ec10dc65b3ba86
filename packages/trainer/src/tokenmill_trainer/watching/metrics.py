"""What each step is measured by: the objects of `metrics.jsonl`."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from tokenmill_core.manifest import Frozen
from tokenmill_trainer.report import StepReport
from tokenmill_trainer.watching.profiling import StepWindow
from tokenmill_trainer.watching.timing import Phase

PeakFlops = Annotated[float, Field(gt=0)]


class LoggingConfig(Frozen):
    """What is shown and how it is measured."""

    model_config = ConfigDict(allow_inf_nan=False)

    interval: int = Field(default=10, gt=0)
    """Steps between two lines on the console; the metrics file has every step."""
    peak_flops: PeakFlops | Literal["measure"] | None = None
    """FLOP/s of one device, for `mfu`; `measure`: those of a large matrix product, timed at the start; none: the
    vendor's figure for a known GPU, otherwise `mfu` is null."""
    profile: StepWindow | None = None
    """Steps that torch.profiler records, `FIRST:LAST`, such as "10:15"; none: no profile."""


class StepMeter:
    """Turns step reports and the time they took into metrics, and adds what follows from both."""

    def __init__(self, flops_per_token: float, peak_flops: float | None, world_size: int) -> None:
        self._flops_per_token = flops_per_token
        self._peak = peak_flops * world_size if peak_flops else None
        self._world_size = world_size

    def metrics(self, report: StepReport, time: Mapping[Phase, float]) -> dict[str, Any]:
        """One object of `metrics.jsonl`; `time` has the seconds of each phase since the one before."""
        seconds = sum(time.values()) - time[Phase.VALIDATION] - time[Phase.CHECKPOINT]
        tokens_per_second = report.tokens / seconds
        samples = report.progress.consumed_samples - report.first_sample
        tally = report.tally
        return {
            "step": report.progress.step,
            "first_sample": report.first_sample,
            "consumed_samples": report.progress.consumed_samples,
            "consumed_tokens": report.progress.consumed_tokens,
            "world_size": self._world_size,
            "loss": _number(report.loss) if report.tokens else None,
            "bits_per_byte": bits_per_byte(report.loss * report.tokens, tally.num_bytes),
            "penalty": _number(report.penalty),
            "skipped": report.skipped,
            "grad_norm": _number(report.grad_norm),
            "lr": report.lr,
            "loss_by_source": {name: _number(loss) for name, loss in tally.loss_by_source.items()},
            "tokens_by_source": dict(tally.tokens_by_source),
            "tokens_per_second": round(tokens_per_second, 1),
            "samples_per_second": round(samples / seconds, 3),
            "mfu": tokens_per_second * self._flops_per_token / self._peak if self._peak else None,
            "time": {str(phase): round(spent, 6) for phase, spent in time.items()},
            "memory_bytes": tally.memory_bytes,
            "memory_reserved_bytes": tally.memory_reserved_bytes,
        }


def bits_per_byte(nats: float, num_bytes: float | None) -> float | None:
    """What text of so many bytes takes that a model gives so many nats, or none where that is no number."""
    return _number(nats / math.log(2) / num_bytes) if num_bytes else None


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
