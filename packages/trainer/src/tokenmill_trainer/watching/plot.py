"""The loss curve as a picture."""

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

SHARE_OF_RUN = 0.03
"""Span of the running mean, as a share of the run's steps."""


def plot_loss(rows: list[dict[str, Any]], path: Path, title: str) -> None:
    """Write a PNG of training loss, its running mean, and validation loss over consumed tokens.

    `title` is plain text: a dollar sign in it begins no formula.
    """
    figure = Figure(figsize=(9, 5.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    counted = [row for row in rows if row["loss"] is not None]
    tokens, losses = [row["consumed_tokens"] for row in counted], [row["loss"] for row in counted]
    axes.plot(tokens, losses, color="tab:blue", alpha=0.3, linewidth=1, label="each step")
    axes.plot(tokens, smoothed(losses, SHARE_OF_RUN * len(losses)), color="tab:blue", linewidth=2, label="running mean")
    validated = [row for row in rows if row.get("val_loss") is not None]
    if validated:
        points = [row["consumed_tokens"] for row in validated], [row["val_loss"] for row in validated]
        axes.plot(*points, color="tab:orange", marker="o", markersize=4, label="validation")
    axes.set_title(title, parse_math=False)
    axes.set(xlabel="tokens", ylabel="loss (nats a token)")
    axes.xaxis.set_major_formatter(lambda value, _: _short_number(value))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Software": None})


def smoothed(values: list[float], span: float) -> list[float]:
    """Running mean over about `span` values, with exponentially fading weights, unbiased from the first value on."""
    keep = 1 - 1 / max(span, 1)
    total = weight = 0.0
    means = []
    for value in values:
        total, weight = keep * total + value, keep * weight + 1
        means.append(total / weight)
    return means


def _short_number(value: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
