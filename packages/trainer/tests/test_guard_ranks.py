"""Two ranks: what one of them meets alone both decide on together, and what ends one is told by the other."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenmill_trainer import RunConfig

MakeConfig = Callable[..., RunConfig]
Worker = Callable[[str, RunConfig, Path], subprocess.CompletedProcess[str]]
HERE = Path(__file__).parent


@pytest.fixture
def worker() -> Worker:
    """worker(fault, config, out): two ranks, of which the second meets `fault`."""

    def run(fault: str, config: RunConfig, out: Path) -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "FAULT": fault}
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command = [*launcher, str(HERE / "guard_worker.py"), config.model_dump_json(), str(out)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)

    return run


@pytest.fixture
def config(make_config: MakeConfig) -> RunConfig:
    return make_config(training={"micro_batch_size": 4}, guard={"non_finite": "skip", "hang_seconds": 4})


def test_what_one_rank_meets_is_decided_by_both(tmp_path: Path, config: RunConfig, worker: Worker) -> None:
    done = worker("decide", config, tmp_path / "result.json")
    assert done.returncode == 0, done.stderr
    for first, second in json.loads((tmp_path / "result.json").read_text()):
        assert first == second
        assert [report[0] for report in first[:-1]] == [False, False, True, False, True, False]
        assert first[2][1] == "nan"
        assert first[4][2] == "inf"
        assert "on samples 32 to 39" in first[4][3]


def test_ranks_whose_data_ends_at_different_steps_end_at_the_same(
    tmp_path: Path, config: RunConfig, worker: Worker
) -> None:
    """Nine batches, five on one rank and four on the other: each does four steps, and says why no more."""
    done = worker("end", config, tmp_path / "result.json")
    assert done.returncode == 0, done.stderr
    said = "the data ended after 4 of the 6 steps that are left; lower training.steps"
    assert json.loads((tmp_path / "result.json").read_text()) == [[[4, said], [4, said]]] * 2


@pytest.mark.parametrize(
    ("fault", "phase", "waits"), [("hook", "forward", "forward"), ("data", "data", "agreeing on the data")]
)
def test_a_hang_names_rank_step_and_function(
    tmp_path: Path, config: RunConfig, worker: Worker, fault: str, phase: str, waits: str
) -> None:
    training = config.training.model_copy(update={"zero_stage": 3})  # where ranks wait for each other in each block
    done = worker(fault, config.model_copy(update={"training": training}), tmp_path)
    assert done.returncode != 0
    for rank in (0, 1):
        text = (tmp_path / f"hang-rank-{rank}.txt").read_text()
        assert text in done.stderr
        assert f"late is rank 1: in step 3, {phase}, samples from 16, in sleeps_for_ever (" in text
        assert text.count("late is") == 1
        assert f"Stacks of rank {rank}:" in text
        assert "Thread MainThread:" in text
    assert "in sleeps_for_ever" in (tmp_path / "hang-rank-1.txt").read_text().partition("Stacks of")[2]
    assert f"Error: rank 0: in step 3, {waits}, samples from 16" in done.stderr


def test_a_rank_that_is_gone_is_named(tmp_path: Path, config: RunConfig, worker: Worker) -> None:
    done = worker("die", config, tmp_path)
    assert done.returncode != 0
    assert "rank 0: rank 1 is gone, or the link to it broke: see its own output above" in done.stderr
