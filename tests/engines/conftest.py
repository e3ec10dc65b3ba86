"""What the engines are tried on: real commands, on real text and on a small stage with probes."""

import email
import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tokenmill_core.pieces import group_pieces

LETTERS = Path(__file__).parents[2] / "packages/core/tests/helpers"


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Source code of the standard library, a task a file."""
    monkeypatch.setattr("tokenmill_core.sources.group_pieces", lambda pieces, _: group_pieces(pieces, 1))
    folder = tmp_path / "sources"
    folder.mkdir()
    for path in sorted(Path(email.__file__).parent.glob("*.py"))[:12]:
        shutil.copy(path, folder)
    return folder


@pytest.fixture
def cut_gzip(tmp_path: Path, write_lines: Any) -> Path:
    """Two files of documents; the compressed one ends in the middle."""
    path = write_lines("cut/a.jsonl", ["one " * 50, "two " * 50])
    whole = gzip.compress(path.read_bytes())
    path.with_name("b.jsonl.gz").write_bytes(whole[: len(whole) * 6 // 10])
    return path.parent


class Command:
    """`letters` on four files, in a session of its own."""

    def __init__(self, folder: Path, out: str, *arguments: str, env: dict[str, str]) -> None:
        self.log = folder / f"{out}.log"
        command = [str(LETTERS / "letters_cli.py"), str(folder / "letters"), "--name", "letters"]
        paths = os.pathsep.join([str(LETTERS), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", *command, "--out", str(folder / out), *arguments],
            env=os.environ | {"PYTHONPATH": paths, "LETTERS_LOG": str(self.log)} | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self, timeout: float = 120) -> tuple[int, str]:
        """(exit code, standard error)."""
        _, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, err

    def tasks(self, at_least: int = 0, seconds: float = 60) -> list[list[str]]:
        """(phase, index, process id) of each task begun so far, once there are enough."""
        deadline = time.monotonic() + seconds
        while True:
            lines = self.log.read_text().splitlines() if self.log.exists() else []
            if len(lines) >= at_least:
                return [line.split() for line in lines]
            assert self.process.poll() is None, self.finish()
            assert time.monotonic() < deadline, f"{len(lines)} tasks after {seconds} s"
            time.sleep(0.05)


@pytest.fixture
def letters(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """letters("out", *arguments, **environment): start `letters`."""
    (tmp_path / "letters").mkdir()
    for number in range(4):
        (tmp_path / f"letters/f{number}.txt").write_text(f"alpha {number}\nb\ngamma {'x' * number}\n")
    started: list[Command] = []

    def start(out: str, *arguments: str, **env: str) -> Command:
        started.append(Command(tmp_path, out, *arguments, env=env))
        return started[-1]

    yield start
    for command in started:
        if command.process.poll() is None:
            os.killpg(command.process.pid, signal.SIGKILL)
        command.process.communicate()


@pytest.fixture
def snapshot() -> Callable[[Path], dict[str, bytes]]:
    """snapshot(folder): content of every file below it, and the names of folders."""

    def read(folder: Path) -> dict[str, bytes]:
        return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"/" for p in folder.rglob("*")}

    return read


@pytest.fixture
def check_resume(letters: Callable[..., Command], tmp_path: Path, snapshot: Any) -> Callable[..., None]:
    """check_resume("out", *arguments): run again what was broken off: what was done is kept, and all is right."""

    def check(out: str, *arguments: str) -> None:
        done = len(list((tmp_path / out).glob(".work/*/split/reports/*.json")))
        assert not (tmp_path / out / "manifest.json").exists()
        (tmp_path / f"{out}.log").unlink()
        again = letters(out, *arguments)
        code, err = again.finish()
        assert code == 0, err
        assert len([task for task in again.tasks() if task[0] == "split"]) == 4 - done
        assert letters("local", "--workers", "1").finish()[0] == 0
        assert snapshot(tmp_path / out) == snapshot(tmp_path / "local")

    return check


@pytest.fixture
def gone() -> Callable[[int], bool]:
    """gone(pid): whether the process ends within some seconds."""

    def wait(pid: int, seconds: float = 10) -> bool:
        deadline = time.monotonic() + seconds
        while (running := _is_running(pid)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return not running

    return wait


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
