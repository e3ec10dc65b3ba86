"""`prep tokenize` killed at any moment, whole or a worker alone: nothing looks complete, and a rerun mends all."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

Prep = Callable[..., Any]
PREP_WITH_A_TASK_A_FILE = """
from tokenmill_core import pieces, sources
from tokenmill_core.cli import main
sources.group_pieces = lambda found, _: pieces.group_pieces(found, 1)
main()
"""
NUM_FILES = 10


@pytest.fixture
def raw_folder(write_lines: Any, tmp_path: Path) -> Path:
    """Files that take a moment each, whose every third document counts for the loss in part."""
    rng = random.Random(0)
    words = ["fox", "dog", "river", "jumps", "sleeps", "lazy", "quick", "日本語", "Straße"]
    for number in range(NUM_FILES):
        texts = [" ".join(rng.choices(words, k=200)) for _ in range(150)]
        rows = [{"text": text, "answers": [[0, 99]] if i % 3 else False} for i, text in enumerate(texts)]
        write_lines(f"raw/{number}.jsonl", rows)
    return tmp_path / "raw"


@pytest.fixture
def start(raw_folder: Path, tokenizer: Path, tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """start(out): `prep tokenize` on two workers in a process group of its own; what still runs is killed at last."""
    started = []

    def run(out: str) -> subprocess.Popen[str]:
        arguments = ["tokenize", raw_folder, "--tokenizer", tokenizer, "--out", tmp_path / out, "--workers", "2"]
        arguments += ["--loss-mask", "answers", "--carry", "answers"]
        process = subprocess.Popen(
            [sys.executable, "-c", PREP_WITH_A_TASK_A_FILE, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for_reports(process: subprocess.Popen[str], out: Path, count: int) -> None:
    """Until the build in `out` has finished `count` tasks, or is over."""
    deadline = time.monotonic() + 60
    while process.poll() is None and len(list(out.glob(".work/*/encode/reports/*.json"))) < count:
        assert time.monotonic() < deadline, "the build makes no progress"
        time.sleep(0.002)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def clean_build(start: Callable[[str], subprocess.Popen[str]], tmp_path: Path) -> dict[str, bytes]:
    """Every file of a build that nothing disturbed."""
    process = start("undisturbed")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found = content(tmp_path / "undisturbed")
    for suffix in (".idx", ".loss_mask.bin", ".documents.parquet"):
        assert len([name for name in found if name.endswith(suffix)]) == NUM_FILES
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_any_moment_nothing_looks_complete_and_a_rerun_equals_a_clean_build(
    prep: Prep,
    start: Callable[[str], subprocess.Popen[str]],
    clean_build: dict[str, bytes],
    tmp_path: Path,
    seed: int,
) -> None:
    rng, out = random.Random(seed), tmp_path / "out"
    for reports in (0, 2, 5, NUM_FILES - 1, NUM_FILES):
        process = start("out")
        wait_for_reports(process, out, reports)
        time.sleep(rng.uniform(0, 0.05))
        with suppress(ProcessLookupError):  # it was through already
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if (out / "manifest.json").exists():
            assert prep("verify", out).code == 0, "published means complete"
            continue
        for command, code in ((("verify",), 3), (("show",), 1), (("mix", "--out", tmp_path / "m.json"), 1)):
            refused = prep(*command, f"a={out}" if "mix" in command else out)
            assert refused.code == code
            missing = "no manifest here" if out.exists() else "no such file or folder"
            assert missing in refused.out + refused.err
    rerun = start("out")
    _, errors = rerun.communicate(timeout=120)
    assert rerun.returncode == 0, errors
    assert content(out) == clean_build


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers in /proc")
def test_a_worker_killed_alone_ends_the_run_at_once_and_a_rerun_equals_a_clean_build(
    start: Callable[[str], subprocess.Popen[str]], clean_build: dict[str, bytes], tmp_path: Path
) -> None:
    process = start("out")
    wait_for_reports(process, tmp_path / "out", 1)
    os.kill(workers_of(process.pid)[0], signal.SIGKILL)
    began = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 10
    assert process.returncode == 1
    assert "a worker of phase 'encode' was killed" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "out" / "manifest.json").exists()
    rerun = start("out")
    _, errors = rerun.communicate(timeout=120)
    assert rerun.returncode == 0, errors
    assert content(tmp_path / "out") == clean_build


def workers_of(pid: int) -> list[int]:
    """The worker processes of a running command, without Python's own helpers."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
