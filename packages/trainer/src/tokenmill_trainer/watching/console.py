"""What a person sees of a run, on standard error: a bar with figures on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

BAR_WIDTH = 20
DATA_SHARE_SHOWN = 0.01
"""Share of a step's time above which the wait for data is shown."""


class RunConsole:
    """Shows the steps of a run; with `quiet`, on ranks other than 0, nothing at all."""

    def __init__(self, total_steps: int, interval: int, quiet: bool) -> None:
        self._total, self._interval, self._quiet = total_steps, interval, quiet
        self._first: int | None = None
        self._began = time.monotonic()
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def say(self, text: str) -> None:
        """One line, above the bar where there is one."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def step(self, metrics: dict[str, Any]) -> None:
        """Show the metrics of a step, as often as was asked for."""
        step = metrics["step"]
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step, figures=_short_figures(metrics))
        remaining = self._remaining(step)
        if step % self._interval == 0 or step == self._total or "val_loss" in metrics or "harness" in metrics:
            self.say(f"step {step:>{len(str(self._total))}}/{self._total}  {_figures(metrics)}{remaining}")

    def _remaining(self, step: int) -> str:
        """An estimate from the steps after the first one seen, which is often slower than the rest."""
        if self._first is None:
            self._first, self._began = step, time.monotonic()
        if self._bar is not None or step in (self._first, self._total):
            return ""
        seconds = (time.monotonic() - self._began) / (step - self._first) * (self._total - step)
        return f"  {seconds / 60:.0f} min left" if seconds >= 90 else f"  {seconds:.0f} s left"

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            columns = (
                BarColumn(BAR_WIDTH),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}"),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total, figures="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _short_figures(metrics: dict[str, Any]) -> str:
    """What fits beside a bar into 80 columns."""
    return f"{_loss(metrics)}  {metrics['tokens_per_second']:,.0f} tokens/s"


def _figures(metrics: dict[str, Any]) -> str:
    norm = metrics["grad_norm"]
    parts = [
        _loss(metrics),
        "norm not finite" if norm is None else f"norm {norm:.3f}",
        f"lr {metrics['lr']:.2e}",
        f"{metrics['tokens_per_second']:,.0f} tokens/s",
        f"{metrics['samples_per_second']:,.3g} samples/s",
    ]
    if metrics.get("mfu") is not None:
        parts.append(f"mfu {metrics['mfu']:.1%}")
    if _data_share(metrics["time"]) > DATA_SHARE_SHOWN:
        parts.append(f"data wait {_data_share(metrics['time']):.0%}")
    if metrics.get("val_loss") is not None:
        parts.append(f"val_loss {metrics['val_loss']:.4f}")
    if metrics.get("val_bits_per_byte") is not None:
        parts.append(f"({metrics['val_bits_per_byte']:.3f} bits/byte)")
    parts += [f"{name} {value:.4g}" for name, value in metrics.get("harness", {}).items()]
    return "  ".join(parts)


def _loss(metrics: dict[str, Any]) -> str:
    if metrics["loss"] is None:
        return "step left out" if metrics.get("skipped") else "no token counts"
    return f"loss {metrics['loss']:.4f}"


def _data_share(time: Mapping[str, float]) -> float:
    return time["data"] / (sum(time.values()) or 1)
