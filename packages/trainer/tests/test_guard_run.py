"""The guard in a run with a folder: rollback, events, traces, signals, and what a resume makes of them."""

import json
import math
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from tokenmill_core.errors import TokenmillError
from tokenmill_core.manifest import RunManifest, SkippedSamples
from tokenmill_core.manifest_io import load_manifest, verify_files
from tokenmill_trainer import RunConfig
from tokenmill_trainer.evaluation.validation import ValidationConfig
from tokenmill_trainer.guard.anomaly import NonFiniteError
from tokenmill_trainer.guard.plain_words import RankError, plain_words
from tokenmill_trainer.guard.signals import StopSignals
from tokenmill_trainer.loop import train
from tokenmill_trainer.run_folder import RunFolder
from tokenmill_trainer.trace import trace_document_of_run, trace_step, traced_steps
from tokenmill_trainer.watching.step_log import read_steps

MakeConfig = Callable[..., RunConfig]


@contextmanager
def spoilt(*calls: int, by: float = math.nan) -> Iterator[None]:
    """What the embedding gives in its nth forwards, counted from 1 over all models, is multiplied `by` something."""
    count = iter(range(1, 1000))

    def hook(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor | None:
        return output * by if isinstance(module, nn.Embedding) and next(count) in calls else None

    handle = register_module_forward_hook(hook)  # type: ignore[arg-type]
    try:
        yield
    finally:
        handle.remove()


def events_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


@pytest.fixture
def config(make_config: MakeConfig, mixture: Path) -> Callable[..., RunConfig]:
    """8 steps of 8 samples, each one forward; a checkpoint every 2."""

    def make(**guard: Any) -> RunConfig:
        return make_config(
            model={"vocab_size": None},
            data={"mixture": str(mixture)},
            training={"steps": 8},
            checkpoint={"interval": 2, "keep_last": 9},
            guard=guard,
        )

    return make


@pytest.fixture
def rolled_back(tmp_path: Path, config: Callable[..., RunConfig]) -> RunFolder:
    """Step 6 is no number, in its first try; the run goes back to step 4, and leaves samples 32 to 55 out."""
    with spoilt(6):
        train(config(non_finite="rollback", skip_after=1), tmp_path / "run")
    return RunFolder(tmp_path / "run")


def test_a_rollback_goes_on_behind_the_batches_left_out(rolled_back: RunFolder) -> None:
    rows = read_steps(rolled_back.metrics_file)
    assert [row["step"] for row in rows] == list(range(1, 9))
    assert [row["first_sample"] for row in rows] == [0, 8, 16, 24, 56, 64, 72, 80]
    assert [row["consumed_samples"] for row in rows] == [8, 16, 24, 32, 64, 72, 80, 88]
    assert not any(row["skipped"] for row in rows)
    assert all(math.isfinite(row["loss"]) for row in rows)
    found, back = events_of(rolled_back.path)
    assert (found["kind"], found["action"], found["step"]) == ("non_finite", "rollback", 6)
    assert (found["first_sample"], found["last_sample"], found["loss"]) == (40, 47, "nan")
    assert (back["kind"], back["restored"]) == ("rollback", "step-00000004")
    assert (back["first_sample"], back["last_sample"]) == (32, 55)
    loaded = load_manifest(str(rolled_back.path), RunManifest)
    verify_files(loaded)
    assert loaded.manifest.skipped == (SkippedSamples(first=32, stop=56, step=None, reason="non_finite"),)
    assert sum(use.samples or 0 for use in loaded.manifest.sources) == loaded.manifest.consumed_samples == 88


def test_the_documents_of_the_batch_are_named(rolled_back: RunFolder, mixture: Path) -> None:
    found, _ = events_of(rolled_back.path)
    assert {row["sample"] for row in found["documents"]} == set(range(40, 48))
    for row in found["documents"]:
        assert (mixture.parent / f"{row['source']}.jsonl").read_text("utf-8").splitlines()[row["row"] - 1]


def test_steps_have_the_rates_they_would_have_had(
    rolled_back: RunFolder, tmp_path: Path, config: Callable[..., RunConfig]
) -> None:
    train(config(), tmp_path / "smooth")
    smooth = read_steps(tmp_path / "smooth" / "metrics.jsonl")
    assert [row["lr"] for row in read_steps(rolled_back.metrics_file)] == [row["lr"] for row in smooth]


def test_traces_know_what_a_rollback_left_out(rolled_back: RunFolder) -> None:
    assert [step.samples.start for step in traced_steps(rolled_back)] == [0, 8, 16, 24, 56, 64, 72, 80]
    rows = trace_step(rolled_back, 5)
    assert {row["sample"] for row in rows} == set(range(56, 64))
    assert {row["skipped"] for row in rows} == {False}
    found, _ = events_of(rolled_back.path)
    one = found["documents"][0]
    traced, _ = trace_document_of_run(rolled_back, f"{one['source']}:{one['file']}:{one['row']}")
    by_sample = {row["sample"]: row for row in traced}
    assert (by_sample[one["sample"]]["step"], by_sample[one["sample"]]["skipped"]) == (None, True)
    for sample, row in by_sample.items():
        assert (row["step"] is None) == (32 <= sample < 56)


def test_a_run_goes_on_from_behind_a_rollback_as_if_unbroken(rolled_back: RunFolder, tmp_path: Path) -> None:
    expected = read_steps(rolled_back.metrics_file)
    broken = shutil.copytree(rolled_back.path, tmp_path / "broken")
    shutil.rmtree(broken / "checkpoints" / "step-00000008")
    train(RunFolder(broken).read_config(), broken, resume=True)
    again = read_steps(broken / "metrics.jsonl")
    measured = {"tokens_per_second", "samples_per_second", "time", "memory_bytes", "memory_reserved_bytes"}
    timeless = [
        [{name: value for name, value in row.items() if name not in measured} for row in rows]
        for rows in (expected, again)
    ]
    assert timeless[0] == timeless[1]
    assert load_manifest(str(broken), RunManifest).manifest.skipped[0].stop == 56


def test_without_a_checkpoint_the_step_is_only_left_out(
    tmp_path: Path, config: Callable[..., RunConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    with spoilt(2):
        train(config(non_finite="rollback"), tmp_path / "run")
    assert "there is no checkpoint to go back to yet" in capsys.readouterr().err
    rows = read_steps(tmp_path / "run" / "metrics.jsonl")
    assert [row["skipped"] for row in rows] == [False, True] + [False] * 6
    assert (rows[1]["loss"], rows[1]["grad_norm"], rows[1]["lr"]) == (None, None, 0.0)
    assert {row["skipped"] for row in trace_step(RunFolder(tmp_path / "run"), 2)} == {True}


def test_a_fault_that_comes_again_and_again_ends_the_run(tmp_path: Path, config: Callable[..., RunConfig]) -> None:
    with spoilt(*range(6, 30)), pytest.raises(NonFiniteError, match=r"guard\.max_skips is 2"):
        train(config(non_finite="rollback", max_skips=2, skip_after=0), tmp_path / "run")
    assert [event["action"] for event in events_of(tmp_path / "run") if event["kind"] == "non_finite"] == [
        "rollback",
        "rollback",
        "stop",
    ]
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step-00000002", "step-00000004"]


def test_spikes_are_the_same_in_a_run_that_was_broken_off(tmp_path: Path, config: Callable[..., RunConfig]) -> None:
    settings = config(spike="skip", spike_factor=0.1, window=8, min_history=6)
    with spoilt(7, by=-1):
        train(settings, tmp_path / "whole")
    whole = read_steps(tmp_path / "whole" / "metrics.jsonl")
    assert whole[6]["skipped"]
    broken = shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    for step in (6, 8):
        shutil.rmtree(broken / "checkpoints" / f"step-{step:08d}")
    (broken / "events.jsonl").unlink()
    with spoilt(3, by=-1):
        train(settings, broken, resume=True)
    again = read_steps(broken / "metrics.jsonl")
    assert [row["loss"] for row in again] == [row["loss"] for row in whole]
    assert events_of(broken) == events_of(tmp_path / "whole")


def test_numbers_of_a_validation_that_are_none_end_the_run_and_are_not_saved(
    tmp_path: Path, config: Callable[..., RunConfig]
) -> None:
    settings = config(non_finite="skip").model_copy(update={"validation": ValidationConfig(interval=4)})
    with spoilt(5), pytest.raises(NonFiniteError, match="the validation loss of source core is nan"):
        train(settings, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000002"]


def test_one_ctrl_c_that_arrives_twice_is_one_wish() -> None:
    with StopSignals() as signals:
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert signals.received == "SIGINT"
        signals._received_at -= 10
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_port_that_is_taken_and_memory_that_ends_are_said_plainly() -> None:
    from torch._C._distributed_c10d import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with pytest.raises(RankError, match="the port of MASTER_PORT is taken"), plain_words():
        TCPStore("127.0.0.1", store.port, is_master=True, wait_for_workers=False)
    with pytest.raises(RankError, match=r"out of memory.*lower training.micro_batch_size"), plain_words():
        torch.empty(1 << 60)
    with pytest.raises(ZeroDivisionError), plain_words():
        raise ZeroDivisionError
    with pytest.raises(RuntimeError, match="mat1 and mat2") as raised, plain_words():
        torch.empty(2, 3) @ torch.empty(2, 3)
    assert not isinstance(raised.value, TokenmillError)


def test_a_gpu_that_is_not_there_is_said_plainly(
    tmp_path: Path, pretrain: Callable[..., subprocess.CompletedProcess[str]], mixture: Path, run_toml: Path
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    wants = ("--set", "training.device=cuda")
    out = tmp_path / "run"
    done = pretrain("run", "--config", run_toml, "--mixture", mixture, "--out", out, *wants, check=False)
    assert done.returncode == 2
    assert "training.device: cuda, but torch" in done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists()
