"""Shares by source and stage as a picture."""

from pathlib import Path

from tokenmill_core.errors import TokenmillError
from tokenmill_shards.mixing.figures import Figures

try:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError as error:
    raise TokenmillError(
        f"a plot needs matplotlib ({error}); install it with: pip install 'tokenmill-shards[plot]'"
    ) from error

INCHES_A_BAR, BARS_SHARE = 0.24, 0.8


def plot_shares(figures: Figures, path: Path, title: str) -> None:
    """Write a PNG with a row a source, and in it a bar a stage. The same figures give the same bytes."""
    # Names come from the user: a dollar sign in one does not begin a formula.
    with matplotlib.rc_context({"text.parse_math": False}):
        _draw(figures, title).savefig(path, format="png", metadata={"Software": None})


def _draw(figures: Figures, title: str) -> Figure:
    names, num_stages = [source.name for source in figures.total.sources], len(figures.stages)
    height = 1.3 + INCHES_A_BAR * len(names) * (num_stages + 0.5)
    figure = Figure(figsize=(8, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, stage in enumerate(figures.stages):
        places = [row + BARS_SHARE * ((number + 0.5) / num_stages - 0.5) for row in range(len(names))]
        shares = [100 * source.share for source in stage.sources]
        bars = axes.barh(places, shares, height=BARS_SHARE / num_stages, label=f"{stage.name}: {stage.tokens:,} tokens")
        axes.bar_label(bars, [f"{s.share:.2%}, {s.epochs:.2f} epochs" for s in stage.sources], padding=3, fontsize=8)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.set_xlabel("share of the stage's samples (%)")
    axes.set_title(title)
    if num_stages > 1:
        figure.legend(loc="outside lower center", ncols=min(num_stages, 3), fontsize=8)
    return figure
