"""Checkpoints written beside training: the same files, at no step's cost, and no failure of theirs goes unheard."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tokenmill_trainer import Engine, RunConfig, initialize
from tokenmill_trainer.batches.data import GlobalBatches
from tokenmill_trainer.checkpoints import checkpoint, vouched_files, writing
from tokenmill_trainer.checkpoints.saver import Saver
from tokenmill_trainer.checkpoints.store import list_checkpoints, require_verified, verify_checkpoint
from tokenmill_trainer.guard.anomaly import NonFiniteError

MakeConfig = Callable[..., RunConfig]


def steps(engine: Engine) -> Iterator[int]:
    """Train, and give the number of each step that was done."""
    for batch in engine.batches():
        engine.backward(engine(batch))
        report = engine.step()
        if report is not None:
            yield report.progress.step


class Gate:
    """Holds the thread that writes, on its way into the true `write`, until `open` is set."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def __call__(self, *arguments: Any) -> Path:
        assert self.open.wait(60)
        return writing.write(*arguments)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setattr("tokenmill_trainer.checkpoints.saver.write", gate)
    return gate


def writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "checkpoint"]


def test_steps_that_run_meanwhile_are_not_in_the_files(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches, gate: Gate
) -> None:
    ema = {"ema": {"decay": 0.9}, "checkpoint": {"interval": 1}}
    with initialize(make_config(**ema), source) as engine, Saver(engine, tmp_path / "beside", lambda _: None) as saver:
        for step in steps(engine):
            saver.check()
            if step == 3:
                saver.save()
        gate.open.set()
    at_once = {**ema, "checkpoint": {"interval": 1, "asynchronous": False}}
    with initialize(make_config(**at_once), source) as engine, Saver(engine, tmp_path / "once", print) as saver:
        assert next(step for step in steps(engine) if step == 3)
        saver.save()
    beside, once = (require_verified(tmp_path / name, pytest.fail).manifest for name in ("beside", "once"))
    assert beside.step == 3
    assert beside.digest == once.digest


def test_buffers_are_used_again_and_a_second_save_waits_for_the_first(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenmill_trainer.checkpoints.saver.PATIENCE_SECONDS", 0.0)
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        gate.open.set()

    with initialize(make_config(), source) as engine, Saver(engine, tmp_path, say) as saver:
        for step in steps(engine):
            if step in (2, 4):
                saver.save()
    waits = "waiting until the last checkpoint is written"
    assert [line for line in said if line != waits] == ["saved step-00000002", "saved step-00000004"]
    assert said[0] == waits
    assert [verify_checkpoint(path).manifest.step for path in list_checkpoints(tmp_path)] == [4, 2]


def test_a_save_that_fails_is_an_error_of_a_later_step_and_leaves_the_older_one(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches, largest_file: Any
) -> None:
    message = (
        r"step-00000002: could not be saved: .*__0_0\.distcp.*bytes are free there\); earlier checkpoints are as they"
    )
    with initialize(make_config(), source) as engine, largest_file(50_000):
        checkpoint_of_step_1(engine, tmp_path, largest_file)
        with Saver(engine, tmp_path, pytest.fail) as saver:
            remaining = steps(engine)
            next(remaining)
            saver.save()
            for writer in writers():
                writer.join()
            next(remaining)
            with pytest.raises(checkpoint.CheckpointError, match=message):
                saver.check()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert require_verified(tmp_path, pytest.fail).manifest.step == 1


def checkpoint_of_step_1(engine: Engine, folder: Path, largest_file: Any) -> None:
    next(steps(engine))
    with largest_file(1 << 40):
        checkpoint.save(engine, folder)


def test_an_error_of_the_run_lets_the_save_of_before_it_end(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches, gate: Gate
) -> None:
    def run(engine: Engine) -> None:
        with Saver(engine, tmp_path, lambda _: None) as saver:
            next(steps(engine))
            saver.save()
            gate.open.set()
            raise NonFiniteError("step 2")

    with initialize(make_config(), source) as engine, pytest.raises(NonFiniteError, match="step 2"):
        run(engine)
    assert require_verified(tmp_path, pytest.fail).manifest.step == 1


@contextmanager
def disk_that_forgets_a_byte(name: str) -> Iterator[None]:
    """While files are read back, the one of this name has another byte than was written."""
    forget = vouched_files._forget

    def damaged(path: Path) -> None:
        forget(path)
        if path.name == name:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)

    vouched_files._forget = damaged
    try:
        yield
    finally:
        vouched_files._forget = forget


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", "random-00000.safetensors"])
def test_what_reads_differently_from_what_was_written_is_no_checkpoint(
    tmp_path: Path, make_config: MakeConfig, source: GlobalBatches, name: str
) -> None:
    with initialize(make_config(), source) as engine:
        next(steps(engine))
        checkpoint.save(engine, tmp_path)
        with disk_that_forgets_a_byte(name), pytest.raises(checkpoint.CheckpointError, match="cannot be trusted"):
            checkpoint.save(engine, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert require_verified(tmp_path, pytest.fail).manifest.step == 1
