"""`pretrain report`: what the page says is what the runs' folders say, and text from data stays text."""

import base64
import hashlib
import json
import re
import shutil
import tomllib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_trainer.cli.report import report
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.loop import train
from tokenmill_trainer.report_page.charts import Chart, make_charts
from tokenmill_trainer.report_page.course import Course, read_course
from tokenmill_trainer.report_page.curves import Curves
from tokenmill_trainer.report_page.page import make_page
from tokenmill_trainer.report_page.run_record import distinct_labels, read_run, read_runs
from tokenmill_trainer.watching.step_log import read_steps

HOSTILE = "</script><script>pwned()</script><!-- <img src=x onerror=pwned()> \u2028 &lt; \" '"


class Parsed(HTMLParser):
    """The tags of a page and the text in them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script is given."""
        data: dict[str, Any] = json.loads(next(text for text in self.texts if text.startswith('{"runs"')))
        return data


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, mixture: Path, run_toml: Path) -> tuple[Path, Path]:
    """Two finished runs that differ in their rate."""
    folder = tmp_path_factory.mktemp("reported")
    for name, lr in (("first", 5e-3), ("second", 1e-3)):
        settings = tomllib.loads(run_toml.read_text()) | {"optimizer": {"lr": lr}}
        settings["data"]["mixture"] = str(mixture)
        train(RunConfig.model_validate(settings), folder / name)
    return folder / "first", folder / "second"


@pytest.fixture
def own_run(runs: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the first run, from which its mixture's sources are found as well."""
    return Path(shutil.copytree(runs[0], runs[0].parent / tmp_path.name))


@pytest.fixture
def run_of(own_run: Path) -> Callable[..., Path]:
    """run_of(rows, **logs): a run that has these metrics, and no end."""

    def make(rows: list[dict[str, Any]], **logs: list[dict[str, Any]]) -> Path:
        (own_run / "manifest.json").unlink()
        for name, lines in {"metrics": rows, **logs}.items():
            (own_run / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return own_run

    return make


def metrics(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "consumed_tokens": 100 * step, "loss": 5.0 - step / 1000, **more}


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(report, list(map(str, arguments)))


def chart_of(charts: list[Chart], title: str) -> Chart:
    return next(chart for chart in charts if chart.title == title)


def test_curves_are_exact_while_there_is_room_and_keep_what_stands_out_after() -> None:
    values = np.random.default_rng(0).normal(size=10_007)
    values[[4_321, 7_000]] = 50.0, -50.0
    curves = Curves(max_points=64)
    for number, value in enumerate(values.tolist()):
        curves.add(number + 1, 10 * number, {"x": value} | ({"part": {"a": 1}} if number % 2 else {}))
        if number == 63:
            assert curves.rows_per_point == 1
            assert curves["x", ""].means().tolist() == values[:64].tolist()
    curves.finish()
    assert 32 < len(curves) <= 64
    series = curves["x", ""]
    assert series.sums.sum() == pytest.approx(values.sum())
    assert series.counts.tolist() == curves.num_rows
    assert sum(curves.num_rows) == len(values)
    assert [first - 1 for first in curves.first_steps] == [0, *curves.last_steps[:-1]]
    for first, last, low, high in zip(curves.first_steps, curves.last_steps, series.lows, series.highs, strict=True):
        assert (low, high) == (values[first - 1 : last].min(), values[first - 1 : last].max())
    assert curves["part", "a"].counts.sum() == 5003


def test_the_course_of_a_run() -> None:
    course = Course()
    course.add(metrics(1, tokens_per_second=1.0, val_loss=4.0))
    course.add(metrics(2, tokens_per_second=100.0, val_loss=3.0, skipped=True))
    course.add(metrics(3, tokens_per_second=50.0, val_loss=3.5, world_size=2))
    course.add({"step": 4, "consumed_tokens": 1300, "loss": None})
    assert (course.step, course.tokens, course.world_size, course.num_skipped) == (4, 1300, 2, 1)
    assert course.best == (3.0, 2)
    assert course.last_validation == (3.5, 3)
    assert course.loss == pytest.approx((4.999 + 4.998 + 4.997) / 3)
    assert course.tokens_per_second == pytest.approx(200 / 3)  # the first step does not count


def test_the_page_has_what_the_folders_say(runs: tuple[Path, Path]) -> None:
    parsed = Parsed(make_page(read_runs(runs)))
    for number, run in enumerate(runs):
        rows = read_steps(run / "metrics.jsonl")
        loss = next(chart for chart in parsed.data["charts"] if chart["title"] == "Training loss")["curves"][number]
        assert loss["label"] == run.name
        assert loss["y"] == pytest.approx([row["loss"] for row in rows], rel=1e-6)
        assert parsed.data["runs"][number]["training"]["tokens"] == [row["consumed_tokens"] for row in rows]
        assert parsed.data["runs"][number]["validation"]["steps"] == [6, 12]
    titles = [chart["title"] for chart in parsed.data["charts"]]
    assert {"Validation loss: core", "Validation loss: trainer", "Learning rate", "Gradient norm"} <= set(titles)
    differing = parsed.text.partition("not the same in all runs")[2].partition("All ")[0]
    assert re.findall(r"\w+\.\w+", differing) == ["optimizer.lr", "0.005", "0.001"]
    manifest = json.loads((runs[0] / "manifest.json").read_text())
    for source in manifest["sources"]:
        assert f"{source['tokens']:,} {source['epochs']:.2f}" in parsed.text
    assert "raw trainer" in parsed.text
    assert "step-00000008" in parsed.text
    assert make_page(read_runs(runs)) == make_page(read_runs(runs))


def test_one_run_has_its_sources_in_one_chart(runs: tuple[Path, Path]) -> None:
    charts = make_charts(read_runs(runs[:1]))
    by_source = [chart for chart in charts if chart.measure.field == "val_loss_by_source"]
    assert len(by_source) == 1
    assert {curve.label for curve in by_source[0].curves} == {"core", "trainer"}


def test_a_run_that_has_not_ended(run_of: Callable[..., Path]) -> None:
    run = run_of([metrics(step) for step in range(1, 6)])
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "lo')
    parsed = Parsed(make_page(read_runs([run])))
    assert "42 % done" in parsed.text  # 5 of 12 steps
    assert [chart["title"] for chart in parsed.data["charts"]] == ["Training loss"]
    (run / "metrics.jsonl").unlink()
    shutil.rmtree(run / "checkpoints")
    assert "nothing to draw" in Parsed(make_page(read_runs([run]))).text


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(own_run: Path) -> None:
    (own_run / "checkpoints/step-00000012/manifest.json").write_text("{")
    (own_run / "mixture.json").write_text("{")
    (own_run / "events.jsonl").write_text("[]\n")
    text = Parsed(make_page(read_runs([own_run]))).text
    assert "step-00000008" in text
    assert re.search(r"step-00000012 \S+/manifest.json: not JSON", text)
    assert re.search(r"mixture.json: not JSON", text)
    assert re.search(r"events.jsonl, line 1: no object with a step", text)
    assert "No manifest of a mixture can be read here" in text


def test_sources_that_are_not_found_are_named_in_the_tree(runs: tuple[Path, Path], tmp_path: Path) -> None:
    moved = shutil.copytree(runs[0], tmp_path / "deep/er/moved")
    text = Parsed(make_page(read_runs([moved]))).text
    assert re.search(r"tokens core \w{12} \S+: no such file or folder", text)


def test_text_from_data_stays_text(run_of: Callable[..., Path]) -> None:
    rows = [
        metrics(
            step, tokens_by_source={HOSTILE: step, "b": 1}, loss_by_source={HOSTILE: 2.0 + step}, time={HOSTILE: 1.5}
        )
        | {HOSTILE: step, "val_loss_by_source": {HOSTILE: float(step)}}
        for step in (1, 2, 3)
    ]
    samples = [{"step": 2, "prompt": HOSTILE, "text": HOSTILE * 2}]
    events = [{"step": 2, "kind": HOSTILE, "documents": {HOSTILE: [HOSTILE]}, HOSTILE: HOSTILE}]
    run = run_of(rows, samples=samples, events=events)
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(f"{config}\n[hostile]\nvalue = {json.dumps(HOSTILE)}\n")
    run = run.rename(run.parent / "<script>pwned()<")
    page = make_page(read_runs([run]))
    parsed = Parsed(page)
    scripts = [attributes for tag, attributes in parsed.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "report-data"}, {}]
    assert not [tag for tag, _ in parsed.tags if tag in ("img", "iframe", "object", "embed", "base", "form")]
    assert not [name for _, attributes in parsed.tags for name in attributes if name.startswith("on")]
    assert parsed.data["runs"][0]["label"] == run.name
    assert parsed.data["runs"][0]["marks"] == [[2, HOSTILE]]
    assert HOSTILE in {chart["title"] for chart in parsed.data["charts"]}
    assert HOSTILE in {curve["label"] for chart in parsed.data["charts"] for curve in chart["curves"]}
    spaced = " ".join(HOSTILE.split())
    assert parsed.text.count(spaced) > 10
    data = page.partition('id="report-data">')[2].partition("</script>")[0]
    assert not re.search("[<>&\u2028]", data)


def test_the_policy_lets_only_what_the_page_has_act(runs: tuple[Path, Path]) -> None:
    page = make_page(read_runs(runs))
    policy = next(
        attributes["content"] or ""
        for tag, attributes in Parsed(page).tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    for kind, text in (
        ("style", page.partition("<style>")[2].partition("</style>")[0]),
        ("script", page.rpartition("<script>")[2].partition("</script>")[0]),
    ):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert re.findall(r"https?://[^\s\"']+", page) == ["http://www.w3.org/2000/svg"]  # a name, not a place
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["data:,"]


def test_a_long_run_makes_a_small_page(run_of: Callable[..., Path]) -> None:
    steps = 20_000
    rows = [metrics(step, grad_norm=1.0 + step % 7, time={"data": 0.1, "forward": 0.2}) for step in range(1, steps + 1)]
    rows[12_344]["loss"] = 99.5
    run = run_of(rows)
    page = make_page(read_runs([run]))
    assert len(page) < 400_000
    loss = Parsed(page).data["charts"][0]["curves"][0]
    assert 1000 < len(loss["y"]) <= 2000
    places = Parsed(page).data["runs"][0]["training"]
    spike = loss["high"].index(99.5)
    assert places["first"][spike] <= 12_345 <= places["steps"][spike]
    assert places["steps"][-1] == steps


def test_more_sources_than_colours(run_of: Callable[..., Path]) -> None:
    sources = {f"s{number}": 100 - number for number in range(14)}
    run = run_of(
        [metrics(step, tokens_by_source=sources, loss_by_source=dict.fromkeys(sources, 3.0)) for step in (1, 2)]
    )
    charts = make_charts(read_runs([run]))
    shares = chart_of(charts, "Share of the sources")
    assert [curve.label for curve in shares.curves] == [*(f"s{number}" for number in range(9)), "all others (5)"]
    assert np.sum([curve.values for curve in shares.curves], axis=0).tolist() == [sum(sources.values())] * 2
    losses = next(chart for chart in charts if chart.measure.field == "loss_by_source")
    assert (len(losses.curves), losses.left_out) == (10, 4)


def test_a_source_has_one_colour_everywhere(run_of: Callable[..., Path]) -> None:
    more = {"tokens_by_source": {"a": 1, "c": 5}, "val_loss_by_source": {"a": 2.0, "b": 3.0}}
    charts = make_charts(read_runs([run_of([metrics(1, **more), metrics(2, **more)])]))
    colours = [{c.label: c.colour for c in chart.curves} for chart in charts if "by_source" in chart.measure.field]
    assert colours == [{"a": 1, "b": 2}, {"c": 0, "a": 1}]


def test_unknown_fields_are_drawn_where_they_change(run_of: Callable[..., Path]) -> None:
    rows = [metrics(step, penalty=0.0, novel=step, same=7, by_name={"x": step}) for step in (1, 2)]
    titles = [chart.title for chart in make_charts(read_runs([run_of(rows)]))]
    assert titles == ["Training loss", "novel", "by_name"]


def test_labels_tell_runs_apart(tmp_path: Path) -> None:
    assert distinct_labels([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]
    assert distinct_labels([tmp_path / "x/run", tmp_path / "y/run"]) == ["x/run", "y/run"]
    with pytest.raises(ConfigError, match="named twice"):
        distinct_labels([tmp_path / "a", tmp_path / "b/../a"])


def test_the_command(runs: tuple[Path, Path], own_run: Path, tmp_path: Path) -> None:
    done = invoke(own_run)
    assert done.exit_code == 0
    assert (own_run / "report.html").stat().st_size > 20_000
    assert str(own_run / "report.html") in done.output
    assert invoke(*runs, "--out", tmp_path / "new/both.html").exit_code == 0
    assert (tmp_path / "new/both.html").read_text("utf-8").startswith("<!doctype html>")
    refused = invoke(*runs)
    assert isinstance(refused.exception, ConfigError)
    assert "--out" in str(refused.exception)
    with pytest.raises(InputError, match="no run here"):
        read_run(tmp_path, "x")


def test_figures_for_scripts(runs: tuple[Path, Path]) -> None:
    done = invoke(*runs, "--json")
    rows = json.loads(done.output)
    assert not (runs[0] / "report.html").exists()
    assert [row["run"] for row in rows] == ["first", "second"]
    course = read_course(runs[0] / "metrics.jsonl")
    manifest = json.loads((runs[0] / "manifest.json").read_text())
    assert rows[0]["steps"] == rows[0]["total_steps"] == 12
    assert rows[0]["loss"] == course.loss
    assert rows[0]["best_val_loss"] == min(rows[0]["val_loss"], rows[0]["best_val_loss"])
    assert (rows[0]["finished"], rows[0]["digest"]) == (True, manifest["digest"])
    assert rows[0]["parameters"] == 2 * 512 * 48 + 2 * (48 * 48 * 2 + 2 * 48 * 16 + 3 * 48 * 96 + 2 * 48) + 48
