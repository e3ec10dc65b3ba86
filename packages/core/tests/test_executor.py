"""Workers that fail, die or are stopped: a prompt and truthful end, and nobody left behind."""

import os
import re
import signal
import time

import pytest

from tokenmill_core.errors import StageError
from tokenmill_core.manifest_io import load_manifest, verify_files

PROMPT_SECONDS = 5.0


@pytest.fixture
def command(start, raw, tmp_path):
    """command(out, *more, **env): `letters RAW --out OUT --workers 2`, logging its tasks to `tasks.log`."""

    def run(out="out", *more, workers=2, **env):
        arguments = ["letters_cli.py", str(raw), "--out", str(tmp_path / out), "--name", "letters"]
        return start(*arguments, "--workers", str(workers), *more, **{"LETTERS_LOG": str(tmp_path / "tasks.log")} | env)

    return run


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("failure", "error", "message"),
    [
        ("value", StageError, "task 1 of phase 'write' failed: ValueError: bad luck"),
        ("two", StageError, "task 1 of phase 'write' failed: TwoWords: bad luck"),
        ("disk", OSError, r"\[Errno 28\] full: '/d'"),
    ],
)
def test_what_a_task_raises_names_the_task_or_the_file(make, monkeypatch, workers, failure, error, message):
    monkeypatch.setenv("LETTERS_FAIL", failure)
    with pytest.raises(error, match=message):
        make(workers=workers)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_worker_ends_the_command_promptly(command, tmp_path, log_lines, number):
    running = command(LETTERS_SLEEP="30")
    victim = int(log_lines(tmp_path / "tasks.log", 2)[0].split()[-1])
    assert victim != running.process.pid
    killed_at = time.monotonic()
    os.kill(victim, number)
    code, _, err = running.finish()
    assert code == 1
    assert time.monotonic() - killed_at < PROMPT_SECONDS
    assert "a worker of phase 'split' was killed" in err
    assert "Traceback" not in err
    assert running.wait_until_gone() == []
    assert not (tmp_path / "out/manifest.json").exists()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_command_says_how_to_go_on(command, tmp_path, log_lines, snapshot, workers, number):
    running = command(workers=workers, LETTERS_SLEEP="30")
    log_lines(tmp_path / "tasks.log", workers)
    if number == signal.SIGINT:
        running.signal_all(number)  # as a terminal does
    else:
        os.kill(running.process.pid, number)
    code, _, err = running.finish(PROMPT_SECONDS)
    assert code == 75
    assert err.strip().endswith("Stopped. Finished tasks are kept: run the same command again to go on.")
    assert "Traceback" not in err
    assert running.wait_until_gone() == []
    assert not (tmp_path / "out/manifest.json").exists()


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.2])
def test_ctrl_c_while_workers_are_starting(command, seconds):
    """They know nothing of signals yet, and would each print a traceback."""
    running = command(LETTERS_SLEEP="30")
    deadline = time.monotonic() + 30
    while len(running.members()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(seconds)
    running.signal_all(signal.SIGINT)
    code, _, err = running.finish(PROMPT_SECONDS)
    assert code == 75
    assert "Traceback" not in err
    assert running.wait_until_gone() == []


def test_workers_do_not_outlive_a_killed_parent(command, tmp_path, log_lines):
    running = command(LETTERS_SLEEP="30")
    log_lines(tmp_path / "tasks.log", 2)
    assert len(running.members()) >= 3
    os.kill(running.process.pid, signal.SIGKILL)
    assert running.wait_until_gone(PROMPT_SECONDS) == []


@pytest.mark.parametrize("seconds", [0.05, 0.25, 0.4, 0.6])
def test_killed_as_a_whole_and_run_again(command, make, tmp_path, log_lines, snapshot, seconds):
    """Counted from the first task, in a build of about half a second with two workers."""
    running = command(LETTERS_SLEEP="0.1")
    log_lines(tmp_path / "tasks.log", 1)
    time.sleep(seconds)
    running.signal_all(signal.SIGKILL)
    running.finish()
    out = tmp_path / "out"
    if (out / "manifest.json").exists():
        verify_files(load_manifest(str(out)))
    make(workers=2)
    make("clean")
    assert snapshot(out) == snapshot(tmp_path / "clean")


def test_of_two_builds_of_one_output_the_second_is_refused(command, tmp_path, log_lines):
    first = command(workers=1, LETTERS_SLEEP="0.5")
    log_lines(tmp_path / "tasks.log", 1)
    second = command(workers=1)
    code, _, err = second.finish()
    assert code == 1
    assert re.fullmatch(r"Error: .*/out: another process is building this; wait for it or stop it\n", err)
    assert first.finish()[0] == 0
    verify_files(load_manifest(str(tmp_path / "out")))
