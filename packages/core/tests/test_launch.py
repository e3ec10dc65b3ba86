"""Tasks shared out to workers of a cluster, and what the folder between us and them says."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill_core.errors import ConfigError, ExitCode, InputError, StageError
from tokenmill_core.executor.follow import Ending, follow
from tokenmill_core.executor.launch import ClusterSettings, Launch, cut_shares
from tokenmill_core.stage import Phase, Report, Task, Work

TASKS = [Task(index=index, payload={"n": index}, weight=index) for index in range(5)]


def launch_of(phase, tmp_path, **settings):
    return Launch.create(phase, TASKS, Work(tmp_path), 2, ClusterSettings(**settings))


def phase_that(run):
    return Phase("phase", lambda work: TASKS, run)


@given(st.lists(st.integers(0, 1000)), st.integers(1, 20))
def test_every_task_is_in_one_share_and_shares_are_even(weights, num_shares):
    tasks = [Task(index=index, payload={}, weight=weight) for index, weight in enumerate(weights)]
    shares = cut_shares(tasks, num_shares)
    assert sorted(task.index for share in shares for task in share) == list(range(len(tasks)))
    assert len(shares) == min(num_shares, len(tasks))
    loads = [sum(max(task.weight, 1) for task in share) for share in shares]
    assert max(loads, default=0) - min(loads, default=0) <= max([1, *weights])


def test_a_share_runs_its_tasks_and_leaves_those_that_are_done(tmp_path):
    ran = []
    work = Work(tmp_path)
    phase = phase_that(lambda task, work: ran.append(task) or Report(notes={"n": task.payload["n"]}))
    work.write_report("phase", 3, Report())
    launch = launch_of(phase, tmp_path)
    for rank in range(launch.num_shares):
        launch.run_share(rank, phase, work)
    assert sorted(task.index for task in ran) == [0, 1, 2, 4]
    assert [report.notes for report in work.reports("phase")] == [{"n": 0}, {"n": 1}, {"n": 2}, {}, {"n": 4}]


@pytest.mark.parametrize(
    ("raised", "kind", "message", "code"),
    [
        (InputError("a.gz: cut short"), InputError, "a.gz: cut short", ExitCode.FAILED),
        (ConfigError("wrong"), ConfigError, "wrong", ExitCode.USAGE),
        (ValueError("bad luck"), StageError, "task 4 of phase 'phase' failed: ValueError: bad luck", ExitCode.FAILED),
        (OSError(errno.ENOSPC, "No space left", "/d"), OSError, "[Errno 28] No space left: '/d'", None),
    ],
)
def test_what_a_worker_fails_with_is_raised_here(tmp_path, raised, kind, message, code):
    def fail(task, work):
        raise raised

    phase = phase_that(fail)
    launch = launch_of(phase, tmp_path)
    launch.raise_failure()
    with pytest.raises(kind):
        launch.run_share(0, phase, Work(tmp_path))
    with pytest.raises(kind) as caught:
        launch.raise_failure()
    assert type(caught.value) is kind
    assert str(caught.value) == message
    assert getattr(caught.value, "exit_code", None) == code


@pytest.mark.parametrize("max_restarts", [0, 2])
def test_a_share_is_begun_as_often_as_allowed(tmp_path, max_restarts):
    phase = phase_that(lambda task, work: Report())
    launch = launch_of(phase, tmp_path, max_restarts=max_restarts)
    for _ in range(max_restarts + 1):
        launch.run_share(0, phase, Work(tmp_path))
    with pytest.raises(StageError, match="a worker of phase 'phase' was killed"):
        launch.run_share(0, phase, Work(tmp_path))


def test_two_launches_share_nothing(tmp_path):
    phase = phase_that(lambda task, work: Report())
    first, second = launch_of(phase, tmp_path), launch_of(phase, tmp_path)
    assert first.folder != second.folder
    first.run_share(0, phase, Work(tmp_path))
    assert list((second.folder / "starts").iterdir()) == []


def test_an_engine_that_stops_early_is_an_error_and_one_that_is_done_is_not(tmp_path):
    work, done = Work(tmp_path), []
    phase = phase_that(lambda task, work: Report())
    launch = launch_of(phase, tmp_path)
    launch.run_share(0, phase, work)
    with pytest.raises(StageError, match=r"it went away\. Finished tasks are kept"):
        follow(launch, phase, TASKS, work, done.append, lambda: Ending("it went away.", 0))
    assert 0 < len(done) < len(TASKS)
    launch.run_share(1, phase, work)
    follow(launch, phase, TASKS, work, done.append, lambda: Ending("it went away.", 0))
    assert {task.index for task in done} == set(range(5))
