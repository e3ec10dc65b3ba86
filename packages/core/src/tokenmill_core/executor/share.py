"""Our side of datatrove: a step that runs tasks, and its executors. Only imported where datatrove is installed.

The executors are as they are, but for the files they write about a pipeline, as ours would list all inputs of a stage
and what there is to count stands in the tasks' reports, and for one wait without end.
"""

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Self

import datatrove.executor.ray
from datatrove.executor.ray import RayPipelineExecutor, RayTaskManager
from datatrove.executor.slurm import SlurmPipelineExecutor
from datatrove.pipeline.base import PipelineStep

from tokenmill_core.executor.launch import Launch
from tokenmill_core.executor.processes import exit_with_parent
from tokenmill_core.stage import Phase, Work


class Share(PipelineStep):  # type: ignore[misc]
    """datatrove's rank R runs the tasks of share R. It is sent once a rank, with the stage and all that it reads."""

    name = "tokenmill"
    type = "tasks"

    def __init__(self, launch: Launch, phase: Phase, work: Work) -> None:
        super().__init__()
        self.launch, self.phase, self.work = launch, phase, work

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        """Run the share; there are no documents to hand on."""
        self.launch.run_share(rank, self.phase, self.work)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # nothing in it changes, and a stage's inputs can list a million files


class ForkedShare(Share):
    """A share in a process that a Ray actor forked, as datatrove has it."""

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        """Run the share, and end with the actor or when told to; the actor ends with this process."""
        exit_with_parent(os.getppid(), self.launch.stop_file)
        with _killed_with_us(os.getppid()):
            super().run(data, rank, world_size)


@contextmanager
def _killed_with_us(actor: int) -> Iterator[None]:
    """The actor would wait for ever for a process that was killed; an actor that is killed, Ray notices."""
    # Reads the end of file, and no line, if this process dies in between.
    guard = subprocess.Popen(["/bin/sh", "-c", f"read line || kill -9 {actor}"], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        guard.communicate(b"over\n")


class RayShares(RayPipelineExecutor):  # type: ignore[misc]
    """datatrove's executor for Ray."""

    def run(self) -> None:
        """Run all shares."""
        datatrove.executor.ray.RayTaskManager = _TaskManager
        super().run()

    def save_executor_as_json(self, indent: int = 4) -> None:
        """Leave out."""


class _TaskManager(RayTaskManager):  # type: ignore[misc]
    """Hands on what goes wrong while an actor is started; else datatrove waits for its share for ever."""

    def submit_task(self, *arguments: Any) -> "Future[Any]":
        submitted: Future[Any] = super().submit_task(*arguments)

        def hand_on(started: "Future[None]") -> None:
            if (error := started.exception()) is not None:
                submitted.set_exception(error)

        self.pg_futures[-1].add_done_callback(hand_on)
        return submitted


class SlurmShares(SlurmPipelineExecutor):  # type: ignore[misc]
    """datatrove's executor for Slurm."""

    def save_executor_as_json(self, indent: int = 4) -> None:
        """Leave out."""

    def launch_merge_stats(self) -> None:
        """Leave out: it would be a job more, and wait for ever behind a job that fails."""
