"""The page: one file that loads nothing from elsewhere and runs no script but its own.

    runs ─▶ figures, charts, tables ─▶ assets/page.html ─▶ page

Text from data stands in it as text only: the template escapes all that it is given, the script writes text nodes, and a
content security policy lets nothing run but the style and the script whose hashes it names.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from tokenmill_trainer.report_page import spelling
from tokenmill_trainer.report_page.charts import Chart, Curve, chart_data, make_charts
from tokenmill_trainer.report_page.curves import Curves
from tokenmill_trainer.report_page.figures import figures
from tokenmill_trainer.report_page.mixtures import mixture_tables
from tokenmill_trainer.report_page.run_record import RunRecord
from tokenmill_trainer.report_page.settings import differing, side_by_side

SCRIPTS = ("format.js", "scale.js", "points.js", "elements.js", "chart.js", "gestures.js", "page.js")
MAX_MARKS = 200
"""Events of a run that are marked in its charts, the newest."""


def make_page(runs: Sequence[RunRecord]) -> str:
    """The page on `runs`. The same runs give the same text."""
    style, script = _asset("style.css"), "\n".join(map(_asset, SCRIPTS))
    charts = make_charts(runs)
    settings = side_by_side([run.settings for run in runs])
    template = _environment().get_template("page.html")
    return template.render(
        title=f"{'Run' if len(runs) == 1 else 'Runs'} {', '.join(run.label for run in runs)}",
        policy=_policy(style, script),
        style=style,
        script=script,
        runs=runs,
        figures=[figures(run) for run in runs],
        sections=_sections(charts),
        data={"runs": [_run_data(run) for run in runs], "charts": [chart_data(c, n) for n, c in enumerate(charts)]},
        settings=settings,
        differing=differing(settings) if len(runs) > 1 else [],
        mixtures=mixture_tables(runs),
        extent=_extent,
        say=spelling,
    )


def _sections(charts: Sequence[Chart]) -> dict[str, list[tuple[int, Chart]]]:
    """The charts with their numbers, by the section that they stand in."""
    sections: dict[str, list[tuple[int, Chart]]] = {}
    for number, chart in enumerate(charts):
        sections.setdefault(chart.measure.section, []).append((number, chart))
    return sections


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text("utf-8")


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(str(__package__), "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.filters["compact"] = partial(json.dumps, ensure_ascii=False)
    return environment


def _policy(style: str, script: str) -> str:
    """Nothing may be loaded, and only this style and this script may act."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _run_data(run: RunRecord) -> dict[str, Any]:
    """The run as the script reads it: its name, where its points lie, and its events."""
    marks = [[event["step"], str(event.get("kind", "event"))] for event in run.events.newest[-MAX_MARKS:]]
    course = run.course
    return {
        "label": run.label,
        "training": _places(course.training),
        "validation": _places(course.validation),
        "marks": marks,
    }


def _places(curves: Curves) -> dict[str, list[int]]:
    places = {"steps": curves.last_steps, "tokens": curves.tokens}
    return places | ({"first": curves.first_steps} if curves.rows_per_point > 1 else {})


def _extent(chart: Chart, curve: Curve) -> list[str]:
    """The last, the lowest and the highest value of a curve, in words."""
    known = curve.values[np.isfinite(curve.values)]
    if not known.size:
        return [spelling.NONE] * 3
    lows, highs = (ends[np.isfinite(ends)] for ends in (curve.lows, curve.highs))
    unit = "count" if chart.kind == "shares" else chart.measure.unit
    return [spelling.figure(float(value), unit) for value in (known[-1], lows.min(), highs.max())]
