"""The plots of the page, as SVG. The same report gives the same bytes.

Text stays text, in the font of the page; names from the data are never read as formulas.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tokenmill_core.errors import TokenmillError
from tokenmill_tokenizer.report.result import Measure, Points, Report
from tokenmill_tokenizer.report.spelling import number, text_name

try:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
except ImportError as error:
    raise TokenmillError(
        f"a page needs matplotlib ({error}); install it with: pip install 'tokenmill-tokenizer[report]'"
    ) from error

COLOURS = ("#1f5fa8", "#d2691e", "#2a8c6a", "#9c3587", "#b8860b", "#5b6770", "#c0392b", "#3aa6b9")
"""Of the tokenizers in their order, told apart with any eyesight; they begin again after the last."""
INK, FAINT, RULE = "#1d2530", "#66717d", "#e3e7eb"

MAX_LENGTH = 32
"""Longer tokens share the last place of the histogram."""
_INCHES_WIDE = 8.4
_ROW_INCHES, _BAR_SHARE = 0.17, 0.78

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": FAINT,
    "axes.linewidth": 0.6,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
}
_FONT_FAMILY = re.compile(r"(font: (?:\d+ )?[\d.]+px) [^;\"]*")
_GROUP_ID = re.compile(r'<g id="[^"]*"')


def colour(index: int) -> str:
    """Of the tokenizer in place `index`."""
    return COLOURS[index % len(COLOURS)]


def bytes_per_token(report: Report) -> str:
    """Bars by text, one a tokenizer."""
    texts = list(dict.fromkeys(map(text_name, report.measures)))
    num_bars = len(report.tokenizers)
    with _figure("bytes-per-token", 0.75 + _ROW_INCHES * len(texts) * (num_bars + 0.9)) as (figure, draw):
        axes = figure.subplots()
        for index, tokenizer in enumerate(report.tokenizers):
            measures = [measure for measure in report.measures if measure.tokenizer == tokenizer.tokenizer]
            _bars(axes, index, num_bars, measures)
        axes.set_yticks(range(len(texts)), texts)
        axes.set_ylim(len(texts) - 0.5, -0.5)
        axes.set_xlabel("bytes per token")
        axes.margins(x=0.08)
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
    return draw()


def _bars(axes: Any, index: int, num_bars: int, measures: Sequence[Measure]) -> None:
    height = 1 / (num_bars + 0.9)
    places = [row + (index - (num_bars - 1) / 2) * height for row in range(len(measures))]
    values = [measure.bytes_per_token or 0.0 for measure in measures]
    axes.barh(places, values, height=_BAR_SHARE * height, color=colour(index))
    for place, measure in zip(places, measures, strict=True):
        text = number(measure.bytes_per_token)
        axes.annotate(
            text,
            (measure.bytes_per_token or 0.0, place),
            (4, 0),
            textcoords="offset points",
            va="center_baseline",
            fontsize=7.5,
            color=FAINT,
        )


def token_lengths(report: Report) -> str:
    """Share of the tokens by their bytes: of the vocabulary, and of the text where there is any."""
    panels = [("of the vocabulary", [one.lengths for one in report.tokenizers])]
    if report.measures:
        panels.append(("of the text", [one.lengths_in_text for one in report.tokenizers]))
    with _figure("token-lengths", 2.9) as (figure, draw):
        for axes, (title, histograms) in zip(_row(figure, len(panels)), panels, strict=True):
            for index, histogram in enumerate(histograms):
                axes.stairs(_shares(histogram), [n + 0.5 for n in range(MAX_LENGTH + 1)], **_line(index))
            axes.set(title=title, xlabel="bytes of a token", xlim=(0.5, MAX_LENGTH + 0.5), ylim=(0, None))
            axes.set_xticks([1, 4, 8, 12, 16, 20, 24, 28, 32], [*"148", "12", "16", "20", "24", "28", "32+"])
            axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
            axes.grid(axis="y")
    return draw()


def _shares(histogram: Sequence[int]) -> list[float]:
    """Shares of the lengths from 1 to `MAX_LENGTH`, which takes in all that is longer."""
    padded = [*histogram, *([0] * MAX_LENGTH)]  # of an empty vocabulary there is not even a length 0
    counts = [*padded[1:MAX_LENGTH], sum(padded[MAX_LENGTH:])]
    return [count / max(1, sum(counts)) for count in counts]


def use(report: Report) -> str:
    """How often the token of each rank occurs, and what share of the text the most frequent ones are."""
    with _figure("use", 3.3) as (figure, draw):
        ranks, coverage = _row(figure, 2)
        for index, one in enumerate(report.tokenizers):
            ranks.plot(*_columns(one.rank_frequency), **_line(index))
            coverage.plot(*_columns(one.coverage), **_line(index))
        ranks.set(title="frequency by rank", xlabel="rank of the token", ylabel="occurrences", yscale="log")
        coverage.set(title="coverage of the text", xlabel="number of most frequent tokens", ylim=(0, 1.02))
        coverage.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
        ranks.yaxis.set_major_formatter(_count)
        for axes in (ranks, coverage):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(_count)
            axes.grid()
    return draw()


def _columns(points: Points) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _count(value: float, _: object) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _line(index: int) -> dict[str, Any]:
    return {"color": colour(index), "linewidth": 1.6}


def _row(figure: Figure, num_panels: int) -> list[Any]:
    """Panels beside one another; a single one is no wider than one of two."""
    return list(figure.subplots(1, 2)[:num_panels]) if num_panels > 1 else [figure.add_subplot(1, 2, 1)]


@contextmanager
def _figure(name: str, inches_high: float) -> Iterator[tuple[Figure, Callable[[], str]]]:
    """A figure of the page's width, and what gives its SVG when it is drawn."""
    # The salt names what is defined once and used often, so that no two plots of a page share a name.
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # A name in a script that the measuring font lacks; the reader's own font draws it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(_INCHES_WIDE, inches_high), layout="constrained")
        FigureCanvasSVG(figure)
        drawn = io.StringIO()
        yield figure, lambda: _cleaned(drawn.getvalue())
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None, "Creator": None})


def _cleaned(svg: str) -> str:
    """The `svg` element alone, with the page's font, and without ids that nothing refers to."""
    svg = svg[svg.index("<svg") :].strip()
    return _GROUP_ID.sub("<g", _FONT_FAMILY.sub(r"\1 system-ui, sans-serif", svg))
