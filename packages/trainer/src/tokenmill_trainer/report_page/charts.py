"""Which charts a page has, and the points in them: whatever numbers the rows of the runs hold.

runs ─▶ fields ─▶ a chart a field, a curve a run
                  a field of names (loss by source): a chart a name, or with one run a curve a name
                  a field that adds up (seconds of a step, tokens of a step): layers, a chart a run
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tokenmill_trainer.report_page.curves import Curves, Floats, Key
from tokenmill_trainer.report_page.measures import LAYERS, MEASURES, NAMED, Measure
from tokenmill_trainer.report_page.run_record import RunRecord

MAX_NAMES = 10
"""Most curves or layers that a field of names gets; there are as many colours."""
OTHERS = "all others"
BY_SOURCE = "_by_source"
"""How fields end whose names are those of sources."""


@dataclass(frozen=True)
class Curve:
    """A curve or layer; `colour` is a number of the palette, None for grey."""

    run: int
    label: str
    colour: int | None
    validation: bool
    """Whether its points are those of validation."""
    values: Floats
    """A value a point, NaN where there is none."""
    lows: Floats
    highs: Floats


@dataclass(frozen=True)
class Chart:
    """One chart."""

    title: str
    measure: Measure
    curves: list[Curve]
    kind: Literal["lines", "layers", "shares"] = "lines"
    by_name: bool = False
    """Whether colours stand for names, such as sources, rather than for runs."""
    left_out: int = 0
    """Names that are not drawn."""


def make_charts(runs: Sequence[RunRecord]) -> list[Chart]:
    """The charts of the page, in the order of `measures`; fields that are not known there come last."""
    charts: list[Chart] = []
    found = list(dict.fromkeys(key for run in runs for curves in _both(run) for key in curves.keys))
    scalars = {field for field, name in found if not name}
    named = {field for field, name in found if name}
    for measure in MEASURES:
        if measure.field in scalars:
            charts += _lines(runs, (measure.field, ""), measure, measure.title)
        if measure.field in named:
            charts += _of_names(runs, measure)
    known = {measure.field for measure in MEASURES}
    for key in found:
        if not key[1] and key[0] not in known:
            charts += _lines(runs, key, Measure(key[0], key[0], "", settles=False), key[0])
    for unknown in dict.fromkeys(field for field, name in found if name and field not in known):
        charts += _of_names(runs, Measure(unknown, unknown, "", shape=NAMED))
    return charts


def _both(run: RunRecord) -> tuple[Curves, Curves]:
    return run.course.training, run.course.validation


def _lines(runs: Sequence[RunRecord], key: Key, measure: Measure, title: str) -> Iterator[Chart]:
    """A chart with a curve a run; none where the field never changes and is not always of interest."""
    curves = [
        _curve(number, run.label, number, points, key) for number, run in enumerate(runs) if (points := _find(run, key))
    ]
    if measure.always or _changes(curves):
        yield Chart(title, measure, curves)


def _of_names(runs: Sequence[RunRecord], measure: Measure) -> Iterator[Chart]:
    """Charts of a field that holds an object; a source has the same colour in all of them."""
    order = _order(runs, measure.field)
    names = [name for name in order if any(_find(run, (measure.field, name)) for run in runs)]
    drawn, left_out = names[:MAX_NAMES], max(0, len(names) - MAX_NAMES)
    if measure.shape == LAYERS:
        for number, run in enumerate(runs):
            yield from _layers(number, run, measure, order, several=len(runs) > 1)
    elif len(runs) == 1:
        found = [(name, points) for name in drawn if (points := _find(runs[0], (measure.field, name)))]
        curves = [_curve(0, name, order.index(name), points, (measure.field, name)) for name, points in found]
        yield Chart(measure.title, measure, curves, by_name=True, left_out=left_out)
    else:
        for name in drawn:
            yield from _lines(runs, (measure.field, name), measure, f"{measure.title}: {name}")


def _layers(number: int, run: RunRecord, measure: Measure, order: list[str], *, several: bool) -> Iterator[Chart]:
    """What adds up to the whole of a step; a name that a row does not have adds nothing to it."""
    curves = run.course.training
    present = [name for name in order if (measure.field, name) in curves]
    if not present:
        return
    rows = np.array(curves.num_rows, dtype=np.float64)
    drawn = present if len(present) <= MAX_NAMES else present[: MAX_NAMES - 1]
    values = {name: curves[measure.field, name].sums / rows for name in drawn}
    layers = [_layer(number, name, order.index(name), value) for name, value in values.items()]
    if rest := present[len(drawn) :]:
        others = sum((curves[measure.field, name].sums / rows for name in rest), np.zeros(len(rows)))
        layers.append(_layer(number, f"{OTHERS} ({len(rest)})", None, others))
    title = f"{measure.title}: {run.label}" if several else measure.title
    yield Chart(title, measure, layers, kind="shares" if measure.unit == "percent" else "layers", by_name=True)


def _layer(run: int, label: str, colour: int | None, values: Floats) -> Curve:
    return Curve(run, label, colour, validation=False, values=values, lows=values, highs=values)


def _curve(run: int, label: str, colour: int, points: Curves, key: Key) -> Curve:
    series = points[key]
    return Curve(run, label, colour, key[0].startswith("val_"), series.means(), series.lows, series.highs)


def _find(run: RunRecord, key: Key) -> Curves | None:
    return next((curves for curves in _both(run) if key in curves), None)


def _changes(curves: Sequence[Curve]) -> bool:
    low = min((curve.lows.min() for curve in curves), default=0.0)
    return any(((curve.highs > low) & np.isfinite(curve.highs)).any() for curve in curves)


def _order(runs: Sequence[RunRecord], field: str) -> list[str]:
    """The names in `field`; of sources all that there are, those first of which most tokens were drawn."""
    courses = [curves for run in runs for curves in _both(run)]
    by_source = field.endswith(BY_SOURCE)
    fields = dict.fromkeys(key for curves in courses for key, name in curves.keys if name and key.endswith(BY_SOURCE))
    names = dict.fromkeys(
        name for curves in courses for each in (fields if by_source else [field]) for name in curves.names(each)
    )
    drawn = {name: sum(_total(curves, ("tokens_by_source", name)) for curves in courses) for name in names}
    return sorted(names, key=lambda name: -drawn[name])


def _total(curves: Curves, key: Key) -> float:
    return float(curves[key].sums.sum()) if key in curves else 0.0


def chart_data(chart: Chart, number: int) -> dict[str, Any]:
    """The chart as the script of the page reads it."""
    measure = chart.measure
    return {
        "chart": number,
        "title": chart.title,
        "kind": chart.kind,
        "unit": measure.unit,
        "log": measure.log and chart.kind == "lines",
        "smooth": measure.smooth,
        "settles": measure.settles,
        "byName": chart.by_name,
        "curves": [_curve_data(curve) for curve in chart.curves],
    }


def _curve_data(curve: Curve) -> dict[str, Any]:
    data = {
        "run": curve.run,
        "label": curve.label,
        "colour": curve.colour,
        "points": "validation" if curve.validation else "training",
        "y": _rounded(curve.values),
    }
    if not np.array_equal(curve.lows[np.isfinite(curve.lows)], curve.values[np.isfinite(curve.values)]):
        data |= {"low": _rounded(curve.lows, 5), "high": _rounded(curve.highs, 5)}
    return data


def _rounded(values: Floats, digits: int = 7) -> list[float | None]:
    """fp32 has about 7 digits; more of them would only make the page large."""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in values.tolist()]
