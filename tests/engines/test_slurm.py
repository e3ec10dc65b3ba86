"""Stages on a real Slurm cluster of one node: the same bytes as here, and a truthful end whatever happens."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("datatrove", reason="datatrove is not installed: pip install 'tokenmill-core[slurm]'")

SCRIPT = Path(__file__).with_name("slurm_cluster.sh")
NOT_TO_BE_HAD = 77


@pytest.fixture(scope="session")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A partition of the cluster that answers here, or else of one that is brought up."""
    if found := default_partition():
        yield found
        return
    if not os.environ.get("TOKENMILL_START_SLURM"):
        pytest.skip("no Slurm answers here; `make test-engines` brings one up")
    folder = tmp_path_factory.mktemp("slurm")
    up = subprocess.run(["sh", str(SCRIPT), "up", str(folder)], text=True, stderr=subprocess.PIPE, check=False)
    if up.returncode == NOT_TO_BE_HAD:
        pytest.skip(up.stderr.strip())
    assert up.returncode == 0, up.stderr
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        yield "main"
        subprocess.run(["sh", str(SCRIPT), "down", str(folder)], check=True)


def default_partition() -> str | None:
    if shutil.which("sinfo") is None:
        return None
    answer = subprocess.run(["sinfo", "--noheader", "--format=%P"], capture_output=True, text=True, check=False)
    names = answer.stdout.split() if answer.returncode == 0 else []
    return next((name.rstrip("*") for name in names if name.endswith("*")), None)


@pytest.fixture
def on_slurm(partition: str, tmp_path: Path) -> tuple[str, ...]:
    """Options that run a command there."""
    config = tmp_path / "slurm.toml"
    config.write_text(
        f'[executor]\npartition = "{partition}"\ntime_limit = 10\nmemory_gb_per_cpu = 1\npoll_seconds = 1\n'
        "shares_per_worker = 2\n"
    )
    return ("--executor", "slurm", "--workers", "2", "--executor-config", str(config))


def test_clean_gives_the_same_files(prep, sources, tmp_path, snapshot, on_slurm):
    for name, execution in [("local", ("--workers", "1")), ("slurm", on_slurm)]:
        done = prep("clean", sources, "--out", tmp_path / name, *execution)
        assert done.code == 0, done.err
    assert snapshot(tmp_path / "slurm") == snapshot(tmp_path / "local")


def test_a_failing_task_ends_the_command_as_it_does_here(prep, cut_gzip, tmp_path, on_slurm):
    local = prep("clean", cut_gzip, "--out", tmp_path / "out", "--workers", "1")
    assert local.code == 1
    assert "b.jsonl.gz" in local.err
    there = prep("clean", cut_gzip, "--out", tmp_path / "out", *on_slurm)
    assert (there.code, there.err.splitlines()[-1:]) == (1, local.err.splitlines()[-1:])
    assert not (tmp_path / "out/manifest.json").exists()


def test_what_sbatch_refuses_is_an_error(letters, on_slurm):
    code, err = letters("out", *on_slurm, "--executor-set", "partition=nowhere").finish()
    assert code == 1
    assert "sbatch: error: invalid partition specified: nowhere" in err
    assert "Error: sbatch refused the job" in err


def test_a_cancelled_job_ends_the_run_and_a_rerun_goes_on(letters, on_slurm, check_resume):
    command = letters("out", *on_slurm, LETTERS_SLEEP="3")
    command.tasks(3)
    subprocess.run(["scancel", "--name=tokenmill-split"], check=True)
    cancelled_at = time.monotonic()
    code, err = command.finish()
    assert code == 1
    assert time.monotonic() - cancelled_at < 30
    assert "ended as CANCELLED before its tasks were done" in err
    assert "Traceback" not in err
    check_resume("out", *on_slurm)


def test_a_killed_worker_ends_the_run(letters, on_slurm):
    command = letters("out", *on_slurm, LETTERS_SLEEP="60")
    os.kill(int(command.tasks(1)[0][2]), signal.SIGKILL)
    code, err = command.finish(40)
    assert code == 1
    assert "ended as FAILED before its tasks were done; its log is " in err


def test_a_stopped_command_cancels_its_job(letters, on_slurm, gone):
    command = letters("out", *on_slurm, LETTERS_SLEEP="60")
    workers = [int(task[2]) for task in command.tasks(2)]
    os.killpg(command.process.pid, signal.SIGINT)
    code, err = command.finish(40)
    assert code == 75
    assert "Traceback" not in err
    assert all(gone(pid, 0) for pid in workers)


def test_a_rerun_ends_the_job_of_a_command_that_was_killed(letters, on_slurm, gone):
    command = letters("out", *on_slurm, LETTERS_SLEEP="60")
    worker = int(command.tasks(1)[0][2])
    command.process.kill()
    command.finish()
    assert not gone(worker, 0)
    assert letters("out", *on_slurm).finish()[0] == 0
    assert gone(worker, 0)
