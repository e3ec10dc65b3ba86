import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tokenmill_core.config import validate_config
from tokenmill_core.errors import ConfigError
from tokenmill_trainer.watching.trackers import SampledText, Trackers, TrackersConfig, check_installed
from tokenmill_trainer.watching.trackers.sending import Sender
from tokenmill_trainer.watching.trackers.tracker import as_markdown, numbers


class Server:
    """Stands for a tracker's own server: may be down, slow, or gone for good."""

    place = "http://tracker.invalid"

    def __init__(self, name: str = "run-1", replaces_steps: bool = False) -> None:
        self.id, self.replaces_steps = name, replaces_steps
        self.rows: list[tuple[int, float]] = []
        self.texts: list[int] = []
        self.digests: list[str | None] = []
        self.down: set[int] = set()
        self.answers = threading.Event()
        self.answers.set()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.answers.wait()
        if step in self.down:
            raise ConnectionError("connection refused")
        self.rows.append((step, values["loss"]))

    def show(self, step: int, samples: list[SampledText]) -> None:
        self.texts.append(step)

    def finish(self, digest: str | None) -> None:
        self.digests.append(digest)


def steps(first: int, last: int) -> list[dict[str, float]]:
    return [{"step": step, "loss": float(step)} for step in range(first, last + 1)]


def track(server: Server, path: Path, rows: list[dict[str, float]], digest: str | None = None) -> list[str]:
    said: list[str] = []
    trackers = Trackers([Sender("mlflow", server, path, said.append)])
    for row in rows:
        trackers.log(row)
        trackers.show(int(row["step"]), [SampledText("a", "b")])
    if digest:
        trackers.finished(digest)
    trackers.close()
    return said


def test_a_tracker_gets_all_rows_in_order_and_the_digest_at_the_end(tmp_path: Path) -> None:
    server = Server()
    assert track(server, tmp_path / "t.json", steps(1, 500), "abc") == []
    assert server.rows == [(step, float(step)) for step in range(1, 501)]
    assert server.digests == ["abc"]


def test_a_run_that_goes_on_tells_no_step_twice_unless_the_tracker_replaces_steps(tmp_path: Path) -> None:
    server, replacing = Server(), Server(replaces_steps=True)
    for one, path in ((server, tmp_path / "s.json"), (replacing, tmp_path / "r.json")):
        track(one, path, steps(1, 6))
        track(one, path, steps(5, 8))
    assert [step for step, _ in server.rows] == server.texts == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [step for step, _ in replacing.rows] == [1, 2, 3, 4, 5, 6, 5, 6, 7, 8]
    assert replacing.texts == server.texts
    assert json.loads((tmp_path / "s.json").read_text()) == {"id": "run-1", "step": 8, "sampled_step": 8}
    assert server.digests == [None, None]


def test_another_run_in_the_tracker_begins_afresh(tmp_path: Path) -> None:
    track(Server("run-1"), tmp_path / "t.json", steps(1, 6))
    other = Server("run-2")
    track(other, tmp_path / "t.json", steps(5, 7))
    assert [step for step, _ in other.rows] == [5, 6, 7]


def test_a_tracker_that_fails_is_named_once_and_counted_at_the_end(tmp_path: Path) -> None:
    server = Server()
    server.down = {3, 4, 7}
    said = track(server, tmp_path / "t.json", steps(1, 9))
    assert [step for step, _ in server.rows] == [1, 2, 5, 6, 8, 9]
    assert len(said) == 2
    assert "ConnectionError: connection refused" in said[0]
    assert "3 rows are missing" in said[1]


def test_a_tracker_that_hangs_costs_training_no_time_and_drops_what_finds_no_room(tmp_path: Path) -> None:
    server = Server()
    said: list[str] = []
    server.answers.clear()
    sender = Sender("wandb", server, tmp_path / "t.json", said.append, queue_length=10)
    trackers = Trackers([sender])
    for row in steps(1, 1000):
        trackers.log(row)  # returns though nothing is sent
    sender.close(None, time.monotonic())
    assert server.rows == []
    assert "has not got all of this run" in said[0]
    missing = int(said[0].split("; ")[1].split()[0])
    assert 999 <= missing <= 1000  # one may be on its way
    server.answers.set()


def test_rows_are_flattened_to_numbers_alone() -> None:
    row = {"step": 3, "loss": None, "lr": 1, "skipped": True, "name": "x", "loss_by_source": {"web": 2.5, "code": None}}
    assert numbers(row) == {"lr": 1.0, "skipped": 1.0, "loss_by_source/web": 2.5}


def test_text_of_a_model_stays_text() -> None:
    markdown = as_markdown([SampledText("<b>", "```\n<script>alert(1)</script>\n# head")])
    assert all(line.startswith("    ") for line in markdown.splitlines() if line not in ("", "goes on"))


def test_a_tracker_that_is_not_installed_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    config = TrackersConfig(kinds=("wandb", "trackio"))
    with pytest.raises(ConfigError, match=r'pip install "tokenmill-trainer\[wandb,trackio\]"'):
        check_installed(config)


def test_a_tracker_that_does_not_exist_or_stands_there_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="tensorboard"):
        validate_config(TrackersConfig, {"kinds": ["comet"]}, "run.toml")
    with pytest.raises(ConfigError, match="twice"):
        validate_config(TrackersConfig, {"kinds": ["wandb", "wandb"]}, "run.toml")
