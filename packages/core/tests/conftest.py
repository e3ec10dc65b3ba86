"""Raw files and the `letters` stage of `helpers/`, built here or in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HELPERS = Path(__file__).parent / "helpers"
# Spawned workers get this process's path too, so they find the stage.
sys.path.insert(0, str(HELPERS))

from letters import LettersConfig, build  # noqa: E402

from tokenmill_core.build import Built, build_stage  # noqa: E402
from tokenmill_core.executor import LocalExecutor  # noqa: E402


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """A folder of four small files; the last one has no line of four letters or more."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for number in range(3):
        (folder / f"f{number}.txt").write_text(f"alpha {number}\nb\ngamma {'x' * number}\n")
    (folder / "f3.txt").write_text("b\nc d\n")
    return folder


@pytest.fixture
def make(raw: Path, tmp_path: Path) -> Callable[..., Built]:
    """make(**settings): build the letters of `raw` into OUT."""

    def run(
        out: str = "out", workers: int = 1, force: bool = False, inputs: list[str] | None = None, **settings: Any
    ) -> Built:
        stage = build(LettersConfig(**settings), inputs or [str(raw)], "letters")
        return build_stage(stage, str(tmp_path / out), LocalExecutor(workers), force=force)

    return run


@pytest.fixture
def task_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The tasks run so far, as `phase index`, in the order of their names; reading clears the list."""
    path = tmp_path / "tasks.log"
    monkeypatch.setenv("LETTERS_LOG", str(path))

    def read() -> list[str]:
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return sorted(line.rsplit(" ", 1)[0] for line in lines)

    return read


class Running:
    """A command in a session of its own, with all the processes it started."""

    def __init__(self, *arguments: str, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | env,
            start_new_session=True,
        )

    def signal_all(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def finish(self, timeout: float = 60) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err

    def members(self) -> list[int]:
        """Living processes of the session, the first one included."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(after_name[3]) == self.process.pid and after_name[0] != "Z":
                    found.append(int(entry.name))
        return found

    def wait_until_gone(self, seconds: float = 10) -> list[int]:
        """Who is left of the session after at most `seconds`."""
        deadline = time.monotonic() + seconds
        while (left := self.members()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """start('letters_cli.py', arguments…, LETTERS_SLEEP='1'): a helper script in a process of its own."""
    started: list[Running] = []

    def run(script: str, *arguments: str, **env: str) -> Running:
        started.append(Running(str(HELPERS / script), *arguments, env=env))
        return started[-1]

    yield run
    for running in started:
        for pid in running.members():
            os.kill(pid, signal.SIGKILL)
        running.process.communicate()


def wait_for_lines(path: Path, count: int, seconds: float = 30) -> list[str]:
    """The lines of `path` as soon as there are `count` of them."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) >= count:
            return lines
        time.sleep(0.02)
    raise AssertionError(f"{path} did not get {count} lines in {seconds} s")


@pytest.fixture
def log_lines() -> Callable[..., list[str]]:
    return wait_for_lines


@pytest.fixture
def snapshot() -> Callable[[Path], dict[str, bytes]]:
    """snapshot(folder): content of every file below it."""

    def read(folder: Path) -> dict[str, bytes]:
        return {
            str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"/" for path in folder.rglob("*")
        }

    return read
