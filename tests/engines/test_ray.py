"""Stages on a real Ray cluster: the same bytes as here, and a truthful end whatever happens."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'tokenmill-core[ray]'")
pytest.importorskip("datatrove", reason="datatrove is not installed: pip install 'tokenmill-core[ray]'")

ON_RAY = ("--executor", "ray", "--workers", "2", "--executor-set", "memory_gb_per_cpu=1")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Address of a cluster of two cores, which outlives commands."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("ray_cluster.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"},
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address
    yield address
    process.communicate()


@pytest.fixture
def on_cluster(cluster: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    return (*ON_RAY, "--executor-set", f"address={cluster}", "--executor-set", "shares_per_worker=2")


def test_clean_and_tokenize_give_the_same_files(prep, sources, tokenizer, tmp_path, snapshot, on_cluster):
    for name, execution in [("local", ("--workers", "1")), ("ray", on_cluster)]:
        assert prep("clean", sources, "--out", tmp_path / name / "clean", *execution).code == 0
        out = tmp_path / name / "tokens"
        done = prep("tokenize", tmp_path / name / "clean", "--tokenizer", tokenizer, "--out", out, *execution)
        assert done.code == 0, done.err
    assert snapshot(tmp_path / "ray") == snapshot(tmp_path / "local")


def test_a_failing_task_ends_the_command_as_it_does_here(prep, cut_gzip, tmp_path, on_cluster):
    local = prep("clean", cut_gzip, "--out", tmp_path / "out", "--workers", "1")
    assert local.code == 1
    assert "b.jsonl.gz" in local.err
    assert prep("clean", cut_gzip, "--out", tmp_path / "out", *on_cluster) == local
    assert not (tmp_path / "out/manifest.json").exists()


def test_a_cluster_that_does_not_answer_is_named(prep, cut_gzip, tmp_path):
    there = ("--executor-set", "address=127.0.0.1:1")
    refused = prep("clean", cut_gzip, "--out", tmp_path / "out", *ON_RAY, *there)
    assert refused.code == 1
    assert "no Ray cluster at '127.0.0.1:1'" in refused.err


def test_a_worker_that_fits_on_no_node_is_refused(prep, sources, tmp_path, on_cluster):
    refused = prep("clean", sources, "--out", tmp_path / "out", *on_cluster, "--executor-set", "cpus_per_worker=64")
    assert refused.code == 1
    assert "no node of the Ray cluster has the 64 cores and 64 GiB that a worker is to get" in refused.err


def test_a_killed_worker_ends_the_run_and_a_rerun_goes_on(letters, check_resume):
    command = letters("out", *ON_RAY, LETTERS_SLEEP="3")
    os.kill(int(command.tasks(3)[-1][2]), signal.SIGKILL)  # with two workers a third task begins when one is done
    killed_at = time.monotonic()
    code, err = command.finish()
    assert code == 1
    assert time.monotonic() - killed_at < 30
    assert "Error: a worker of phase 'split' was killed" in err
    assert "Traceback" not in err
    check_resume("out", *ON_RAY)


def test_the_share_of_a_killed_actor_may_be_begun_again(letters, tmp_path, snapshot):
    command = letters("out", *ON_RAY, "--executor-set", "max_restarts=1", LETTERS_SLEEP="1")
    os.kill(parent(int(command.tasks(1)[0][2])), signal.SIGKILL)
    assert command.finish()[0] == 0
    assert letters("local", "--workers", "1").finish()[0] == 0
    assert snapshot(tmp_path / "out") == snapshot(tmp_path / "local")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_command_leaves_nobody_behind(letters, number, gone):
    command = letters("out", *ON_RAY, LETTERS_SLEEP="60")
    workers = {int(task[2]) for task in command.tasks(2)}
    os.killpg(command.process.pid, number)
    code, err = command.finish(15)
    assert code == (75 if number != signal.SIGKILL else -signal.SIGKILL)
    assert "Traceback" not in err
    assert all(gone(pid) for pid in workers)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
