"""What a run shows of itself besides its curve: a profile of some steps, and texts from prompts."""

import gzip
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenmill_core.config import validate_config
from tokenmill_core.errors import ConfigError
from tokenmill_trainer import initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.config import RunConfig
from tokenmill_trainer.model.cpu.onednn import HAS_ONEDNN
from tokenmill_trainer.watching.metrics import LoggingConfig
from tokenmill_trainer.watching.profiling import ProfileWindow

Pretrain = Callable[..., subprocess.CompletedProcess[str]]
PRODUCT = "tokenmill::linear" if HAS_ONEDNN else "aten::mm"
"""What multiplies by weights in fp32 on this CPU."""


def profiled(
    config: RunConfig, source: GlobalBatches, window: str, folder: Path, steps_done: int = 0, stop_after: int = 6
) -> list[str]:
    """The steps of `config` from `steps_done` on, seen through `window`; the files this leaves."""
    said: list[str] = []
    with (
        initialize(config, source) as engine,
        ProfileWindow(window, folder, rank=1, steps_done=steps_done, say=said.append) as profile,
    ):
        for batch in engine.batches():
            engine.backward(engine(batch))
            report = engine.step()
            if report is not None:
                profile.step(steps_done + report.progress.step)
            if report is not None and steps_done + report.progress.step == stop_after:
                break
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else said


def steps_in(trace: Path) -> int:
    """Steps that the trace has, by what the optimizer did."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return sum(event.get("name") == "Optimizer.step#AdamW.step" for event in events)


@pytest.mark.parametrize(
    ("window", "steps_done", "stop_after", "first", "last"),
    [("2:3", 0, 6, 2, 3), ("1:2", 0, 6, 1, 2), ("4:9", 0, 6, 4, 6), ("10:13", 10, 16, 11, 13)],
)
def test_a_profile_has_the_steps_of_its_window_and_no_other(
    make_config: Callable[..., RunConfig],
    source: GlobalBatches,
    tmp_path: Path,
    window: str,
    steps_done: int,
    stop_after: int,
    first: int,
    last: int,
) -> None:
    files = profiled(make_config(), source, window, tmp_path / "profile", steps_done, stop_after)
    name = f"rank-1-steps-{first}-{last}"
    assert files == [f"{name}.pt.trace.json.gz", f"{name}.txt"]
    assert steps_in(tmp_path / "profile" / files[0]) == last - first + 1
    assert PRODUCT in (tmp_path / "profile" / files[1]).read_text()


def test_a_window_that_is_over_or_never_comes_leaves_nothing_and_says_so(
    make_config: Callable[..., RunConfig], source: GlobalBatches, tmp_path: Path
) -> None:
    assert profiled(make_config(), source, "2:3", tmp_path / "over", steps_done=10, stop_after=16) == [
        "no profile: step 3 is done already"
    ]
    assert profiled(make_config(), source, "7:9", tmp_path / "late") == [
        "no profile: this start of the run ended before step 7"
    ]


def test_a_profile_that_cannot_be_written_does_not_end_the_run(
    make_config: Callable[..., RunConfig], source: GlobalBatches, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    said = profiled(make_config(), source, "2:3", tmp_path / "file" / "profile")
    assert len(said) == 1
    assert "could not be written" in said[0]


@pytest.mark.parametrize("window", ["5", "5:", "0:4", "6:5", "a:b", "-1:3"])
def test_a_window_that_is_none_is_refused(window: str) -> None:
    with pytest.raises(ConfigError, match="FIRST:LAST"):
        validate_config(LoggingConfig, {"profile": window}, "run.toml")


def test_a_run_that_shows_itself_computes_what_a_silent_one_does(
    tmp_path: Path, pretrain: Pretrain, mixture: Path, run_toml: Path, losses: Callable[[Path], list[float]]
) -> None:
    common = ("run", "--config", run_toml, "--mixture", mixture, "--set", "training.steps=6", "--set", "ema.decay=0.9")
    prompts = ("--set", 'samples.prompts=["def read", "import\\u001b[31m"]', "--set", "samples.interval=4")
    pretrain(*common, "--out", tmp_path / "silent")
    shown = pretrain(
        *common, *prompts, "--set", "samples.num_tokens=12", "--profile", "2:3", "--out", tmp_path / "shown"
    )
    assert losses(tmp_path / "shown") == losses(tmp_path / "silent")
    manifests = [
        json.loads((tmp_path / name / "checkpoints/step-00000006/manifest.json").read_text())
        for name in ("shown", "silent")
    ]
    assert manifests[0]["config"] == manifests[1]["config"]
    weights = [next(file for file in one["files"] if file["path"] == "__0_0.distcp") for one in manifests]
    assert weights[0] == weights[1]
    rows = [json.loads(line) for line in (tmp_path / "shown/samples.jsonl").read_text().splitlines()]
    assert [(row["step"], row["prompt"], row["weights"]) for row in rows] == [
        (step, prompt, "average") for step in (4, 6) for prompt in ("def read", "import\x1b[31m")
    ]
    assert all(row["text"] for row in rows)
    assert "'def read' -> " in shown.stderr
    assert "\x1b" not in shown.stderr, "what a model writes must not reach the terminal as commands"
    assert (tmp_path / "shown/profile/rank-0-steps-2-3.pt.trace.json.gz").exists()
    assert PRODUCT in shown.stderr
