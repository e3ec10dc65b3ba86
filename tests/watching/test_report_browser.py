"""The page of `pretrain report` in a real browser: what it draws, what it says of a point, and that it stays quiet.

Needs playwright (`make test-watching` installs it) and a Chromium or Chrome: `apt-get install chromium`, or its path in
TOKENMILL_BROWSER.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tokenmill_core.cli.root import prep
from tokenmill_trainer.cli.report import report
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.loop import train

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: make test-watching installs it")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOSTILE = "</script><script>pwned()</script><img src onerror>"
SAMPLE = "</script><script>pwned()</script> <img src=x onerror=pwned()> <!-- \u2028 <b>bold</b>"
NAMES = ("calm", "<img src onerror=pwned()>")
STEPS = 24


@dataclass
class Page:
    """An open page, and what went on in it."""

    tab: Any
    url: str
    noises: list[str]
    """Errors, messages of the console, and requests."""

    def figure(self, title: str) -> Any:
        return self.tab.locator(f'figure[aria-label="{title}"]')

    def drawn(self, title: str, kind: str = "line") -> list[str]:
        """The paths of a chart's curves."""
        return [str(path.get_attribute("d")) for path in self.figure(title).locator(f"path.{kind}").all()]

    def ticks(self, title: str) -> list[str]:
        return list(self.figure(title).locator("svg text").all_text_contents())

    def point_at(self, title: str, step: int) -> str:
        """What the chart says when the mouse is over `step`, steps being on the x axis."""
        plot = self.figure(title).locator(".plot")
        plot.scroll_into_view_if_needed()
        box, (first, last) = plot.bounding_box(), self.ends(title)
        self.tab.mouse.move(first + (last - first) * (step - 1) / (STEPS - 1), box["y"] + box["height"] / 2)
        return str(self.figure(title).locator(".tip").inner_text())

    def ends(self, title: str) -> tuple[float, float]:
        """Where the x axis begins and ends on the screen."""
        axis = self.figure(title).locator("line.axis").bounding_box()
        return axis["x"], axis["x"] + axis["width"]

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two short runs on sources with hostile names, with samples and an event."""
    folder = tmp_path_factory.mktemp("runs")
    sources = {HOSTILE: "alpha beta gamma delta ", 'plain & "quoted"': "one two three four five "}
    for number, words in enumerate(sources.values()):
        rows = (json.dumps({"text": f"{words * 12}{row}"}) for row in range(40))
        (folder / f"{number}.jsonl").write_text("\n".join(rows))
    invoke("train-tokenizer", folder / "0.jsonl", "--vocab-size", 300, "--out", folder / "tokenizer")
    for number in range(2):
        tokenizer = ("--tokenizer", folder / "tokenizer")
        invoke("tokenize", folder / f"{number}.jsonl", *tokenizer, "--out", folder / f"{number}", "--workers", 1)
    mixed = (f"{name}={folder / str(number)}" for number, name in enumerate(sources))
    invoke("mix", *mixed, "--validation-share", 0.2, "--out", folder / "mixture.json")
    for name, lr in zip(NAMES, (1e-3, 1e-2), strict=True):
        train(settings(folder / "mixture.json", lr), folder / name)
    event = {"step": 9, "kind": HOSTILE, "documents": {HOSTILE: [SAMPLE]}}
    (folder / NAMES[1] / "events.jsonl").write_text(json.dumps(event) + "\n")
    (folder / NAMES[1] / "samples.jsonl").write_text(json.dumps({"step": 12, "prompt": HOSTILE, "text": SAMPLE}) + "\n")
    return [folder / name for name in NAMES]


def settings(mixture: Path, lr: float) -> RunConfig:
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_layers": 1, "num_heads": 2, "num_kv_heads": 2}
    return RunConfig.model_validate(
        {
            "model": shape,
            "data": {"mixture": str(mixture), "sequence_length": 16},
            "optimizer": {"lr": lr},
            "training": {"steps": STEPS, "global_batch_size": 4, "micro_batch_size": 4},
            "validation": {"interval": 6, "samples": 4},
        }
    )


def values_in(tip: str) -> dict[str, float]:
    """The values that a chart says, by the names of the runs."""
    _, *lines = tip.splitlines()
    return {name: float(value) for name, value in zip(lines[::2], lines[1::2], strict=True)}


def invoke(*arguments: object) -> None:
    done = CliRunner().invoke(prep, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def rows(runs: list[Path]) -> list[list[dict[str, Any]]]:
    """The metrics of both runs."""
    return [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in runs]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = os.environ.get("TOKENMILL_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("needs a browser: apt-get install chromium, or TOKENMILL_BROWSER=/path/to/chrome")
    with playwright.sync_playwright() as driver:
        # Chromium refuses to run as root inside its sandbox, and shared memory is small in containers.
        opened = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def written(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page on both runs."""
    out = tmp_path_factory.mktemp("page") / "report.html"
    done = CliRunner().invoke(report, [*map(str, runs), "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture
def open_page(browser: Any, written: Path) -> Iterator[Callable[..., Page]]:
    """open_page(width=…, color_scheme=…): the page, drawn."""
    contexts = []

    def open_in(width: int = 1280, **options: Any) -> Page:
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **options))
        tab, noises = contexts[-1].new_page(), []
        tab.on("console", lambda message: noises.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: noises.append(f"error: {error}"))
        tab.on("request", lambda request: noises.append(f"request: {request.url}"))
        page = Page(tab, written.as_uri(), noises)
        tab.goto(page.url)
        page.settle()
        return page

    yield open_in
    for context in contexts:
        context.close()


@pytest.fixture
def page(open_page: Callable[..., Page]) -> Page:
    return open_page()


def test_every_chart_is_drawn_and_nothing_else_is_loaded(page: Page, tmp_path: Path) -> None:
    figures = page.tab.locator("figure").all()
    assert len(figures) >= 6
    for figure in figures:
        for path in figure.locator("path.line, path.layer").all():
            assert (path.get_attribute("d") or "").startswith("M")
        assert figure.locator("path.line, path.layer").count() >= 1
    assert [path.count("L") for path in page.drawn("Training loss")] == [STEPS - 1] * 2
    assert [path.count("L") for path in page.drawn("Validation loss")] == [3, 3]
    axis = page.figure("Training loss").locator("line.axis")
    ends = [float(axis.get_attribute(name)) for name in ("x1", "x2")]
    for path in page.drawn("Training loss"):
        assert [float(place.split()[0]) for place in (path.split("L")[0][1:], path.split("L")[-1])] == ends
    page.tab.screenshot(path=tmp_path / "page.png", full_page=True)
    assert (tmp_path / "page.png").stat().st_size > 50_000
    assert page.noises == [f"request: {page.url}"]


def test_the_mouse_shows_what_all_runs_had_at_a_step(page: Page, rows: list[list[dict[str, Any]]]) -> None:
    page.tab.locator("#smoothing").fill("10")
    page.settle()
    for step in (7, 18):
        tip = page.point_at("Training loss", step)
        tokens = rows[0][step - 1]["consumed_tokens"]
        assert tip.startswith(f"step {step}, {tokens if tokens < 1000 else f'{tokens / 1000:.4g}k'} tokens\n")
        assert values_in(tip) == {
            name: pytest.approx(run[step - 1]["loss"], rel=1e-5) for name, run in zip(NAMES, rows, strict=True)
        }
    tip = page.point_at("Validation loss", 12)
    assert values_in(tip)[NAMES[1]] == pytest.approx(rows[1][11]["val_loss"], rel=1e-5)
    page.tab.mouse.move(0, 0)
    assert not page.figure("Validation loss").locator(".tip").is_visible()


def test_axes_and_smoothing_are_switched(page: Page, rows: list[list[dict[str, Any]]]) -> None:
    before, ticks = page.drawn("Gradient norm"), page.ticks("Gradient norm")
    assert "20" in ticks
    page.tab.locator("#axis").get_by_text("tokens").click()
    page.settle()
    assert rows[0][-1]["consumed_tokens"] > 1000
    assert "1k" in page.ticks("Gradient norm")
    page.tab.locator("#axis").get_by_text("steps").click()
    page.settle()
    assert page.ticks("Gradient norm") == ticks
    page.tab.get_by_text("log y").click()
    page.settle()
    assert page.drawn("Gradient norm") != before
    page.tab.get_by_text("log y").click()
    page.tab.locator("#smoothing").fill("0")
    page.settle()
    assert page.drawn("Training loss", "raw") == []
    assert page.tab.locator("output").inner_text() == "0 %"


def test_a_part_is_chosen_by_dragging_and_let_go_by_a_double_click(page: Page) -> None:
    whole = page.ticks("Learning rate")
    first, last = page.ends("Training loss")
    box = page.figure("Training loss").locator(".plot").bounding_box()
    page.tab.mouse.move(first + (last - first) * 0.25, box["y"] + 50)
    page.tab.mouse.down()
    page.tab.mouse.move(first + (last - first) * 0.5, box["y"] + 60, steps=4)
    page.tab.mouse.up()
    page.settle()
    assert page.tab.locator("#reset").is_visible()
    assert page.ticks("Learning rate") != whole  # all charts go with it
    page.figure("Training loss").locator(".plot").dblclick(position={"x": 200, "y": 50})
    page.settle()
    assert page.ticks("Learning rate") == whole
    assert not page.tab.locator("#reset").is_visible()


def test_a_run_can_be_hidden(page: Page) -> None:
    page.tab.locator(".runs").get_by_text("calm").click()
    page.settle()
    assert len(page.drawn("Training loss")) == 1
    assert "calm" not in page.point_at("Training loss", 7)


def test_the_keyboard_reads_the_points(page: Page, rows: list[list[dict[str, Any]]]) -> None:
    page.figure("Training loss").locator(".plot").focus()
    for _ in range(3):
        page.tab.keyboard.press("ArrowRight")
    spoken = page.tab.locator("#spoken").inner_text()
    assert spoken.startswith("Training loss, step 3, ")
    assert float(spoken.rpartition(f"{NAMES[1]} ")[2]) == pytest.approx(rows[1][2]["loss"], rel=1e-5)
    page.tab.keyboard.press("+")
    page.settle()
    assert page.tab.locator("#reset").is_visible()
    page.tab.keyboard.press("Escape")
    page.settle()
    assert not page.tab.locator("#reset").is_visible()


def test_text_from_data_is_shown_as_text(page: Page) -> None:
    assert page.tab.evaluate("[document.scripts.length, document.images.length, typeof pwned]") == [2, 0, "undefined"]
    assert page.tab.locator("th", has_text=HOSTILE).count() >= 1
    assert page.figure("Training loss").locator("path.mark title").text_content() == f"{NAMES[1]}, step 9: {HOSTILE}"
    assert page.tab.locator("blockquote").text_content() == HOSTILE + SAMPLE
    titles = page.tab.locator("figure h3").all_text_contents()
    assert f"Validation loss: {HOSTILE}" in titles
    assert page.noises == [f"request: {page.url}"]


def test_the_policy_stops_a_script_that_came_in_all_the_same(page: Page) -> None:
    page.tab.evaluate(
        "() => { const script = document.createElement('script'); script.textContent = 'window.pwned = 1';"
        " document.body.append(script); }"
    )
    assert page.tab.evaluate("typeof window.pwned") == "undefined"
    assert any("Content Security Policy" in noise for noise in page.noises)


def test_it_fits_a_phone_and_the_dark(open_page: Callable[..., Page], tmp_path: Path) -> None:
    phone = open_page(width=390, color_scheme="dark", has_touch=True)
    assert phone.tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert phone.tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 26)"
    assert all(path.startswith("M") for path in phone.drawn("Training loss"))
    phone.figure("Training loss").locator(".plot").tap(position={"x": 200, "y": 80})
    assert NAMES[1] in phone.figure("Training loss").locator(".tip").inner_text()
    phone.tab.screenshot(path=tmp_path / "phone.png")
