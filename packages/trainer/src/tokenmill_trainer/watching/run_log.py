"""All that a run writes of its course, in one place: files in its folder, and trackers.

step ─▶ metrics.jsonl, the data log (which samples), trackers
samples from prompts ─▶ samples.jsonl, trackers
"""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tokenmill_trainer.watching.step_log import StepLog
from tokenmill_trainer.watching.trackers import SampledText, Trackers


class RunLog:
    """The files forget steps after `last_step`, which are about to be run again. A path that is none writes nothing."""

    def __init__(
        self,
        metrics: Path | None,
        samples: Path | None,
        data_log: Path | None,
        trackers: Trackers,
        last_step: int,
    ) -> None:
        self._metrics, self._samples, self._data = (StepLog(path, last_step) for path in (metrics, samples, data_log))
        self._trackers = trackers

    def step(self, metrics: dict[str, Any], data: dict[str, Any]) -> None:
        """The metrics of a step and the samples it has seen; both are in their files when this returns."""
        self._metrics.write(metrics)
        self._data.write(data)
        self._trackers.log(metrics)

    def texts(self, step: int, weights: str, samples: Sequence[SampledText]) -> None:
        """What the model wrote after a step, with its training `weights` or their average."""
        for sample in samples:
            self._samples.write({"step": step, "weights": weights, **sample._asdict()})
        if samples:
            self._trackers.show(step, list(samples))

    def forget_after(self, last_step: int) -> None:
        """Forget steps after `last_step`, to which the run has gone back. Trackers keep what they were told."""
        for file in (self._metrics, self._samples, self._data):
            file.forget_after(last_step)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self._metrics, self._samples, self._data):
            file.close()
