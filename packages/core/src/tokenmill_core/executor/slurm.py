"""Slurm, through datatrove's `SlurmPipelineExecutor`: a phase is an array job, and an element of it runs a share."""

import datetime
import logging
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from tokenmill_core.errors import StageError
from tokenmill_core.executor.follow import POLL_SECONDS, Ending, follow
from tokenmill_core.executor.launch import ClusterSettings, Launch, launch_folders
from tokenmill_core.executor.processes import starting_processes
from tokenmill_core.executor.task import OnDone
from tokenmill_core.stage import Phase, Task, Work
from tokenmill_core.storage import write_atomic

_LOG = logging.getLogger("tokenmill")

_UNFINISHED = {
    *("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "STAGE_OUT", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"),
    *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"),
}
_USUAL_REASONS = {"None", "Resources", "Priority", "JobArrayTaskLimit", "BeginTime", "Cleaning"}
_JOB_FILE = "job"
_SECONDS_TO_END = 60.0


def _as_text(value: Any) -> Any:
    """TOML reads 60 as a number and 12:00:00 as a time of day."""
    return str(value) if isinstance(value, int | datetime.time) else value


class SlurmSettings(ClusterSettings):
    """Settings of `--executor slurm`."""

    partition: str
    """Partition of the jobs."""
    time_limit: Annotated[str, BeforeValidator(_as_text)]
    """Longest that a share may take, in Slurm's form: minutes, or `12:00:00`, or `7-00:00:00`."""
    qos: str | None = None
    """Quality of service of the jobs."""
    environment: str | None = None
    """Shell command that makes this installation usable on a node; by default its folder is put on PATH."""
    max_array_size: int = 1001
    """Most elements that the cluster lets an array job have (MaxArraySize)."""
    poll_seconds: float = 5.0
    """How often Slurm is asked for the state of the job."""
    sbatch: dict[str, str] = {}
    """More options for sbatch, by their long names, such as `account`."""


class SlurmExecutor:
    """Array jobs of a cluster whose nodes share the output's file system and this installation."""

    def __init__(self, num_workers: int, settings: SlurmSettings) -> None:
        self.num_workers, self.settings = num_workers, settings

    def close(self) -> None:
        """See `Executor.close`: nothing is kept."""

    def run(self, phase: Phase, tasks: Sequence[Task], work: Work, on_done: OnDone) -> None:
        """See `Executor.run`. A job that is cancelled, or ends for any other reason, ends the run with `StageError`."""
        if not tasks:
            return
        _end_forgotten_jobs(work)
        num_shares = min(self.num_workers * self.settings.shares_per_worker, self.settings.max_array_size)
        launch = Launch.create(phase, tasks, work, num_shares, self.settings)
        try:
            with starting_processes():
                job = self._submit(launch, phase, Work(work.folder.absolute()))
            watch = _Watch(job, launch.path("logs"), self.settings.poll_seconds)
            follow(launch, phase, tasks, work, on_done, watch.ending)
        except BaseException:
            _cancel(launch.folder)
            raise
        _wait_until_over(job)

    def _submit(self, launch: Launch, phase: Phase, work: Work) -> str:
        from loguru import logger

        from tokenmill_core.executor.share import Share, SlurmShares

        logger.disable("datatrove")  # it would tell of files that are gone when all is well
        settings = self.settings
        shares = SlurmShares(
            pipeline=[Share(launch, phase, work)],
            tasks=launch.num_shares,
            workers=self.num_workers,
            time=settings.time_limit,
            partition=settings.partition,
            cpus_per_task=settings.cpus_per_worker,
            mem_per_cpu_gb=settings.memory_gb_per_cpu,
            qos=settings.qos,
            job_name=f"tokenmill-{phase.name}",
            env_command=settings.environment or f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH",
            # Slurm's own default may be to begin a job again whose node was lost; the settings decide.
            requeue=settings.max_restarts > 0,
            sbatch_args=({} if settings.max_restarts else {"no-requeue": ""}) | settings.sbatch,
            srun_args={"cpus-per-task": settings.cpus_per_worker},
            job_id_retriever=_job_id,
            max_array_size=settings.max_array_size,
            logging_dir=str(launch.path("datatrove")),
            slurm_logs_folder=str(launch.path("logs")),
        )
        try:
            shares.launch_job()
        except subprocess.CalledProcessError as error:
            raise StageError("sbatch refused the job, for the reason above: see to the executor's settings") from error
        job = str(shares.job_id)
        write_atomic(launch.path(_JOB_FILE), job.encode())
        return job


def _job_id(answer: str) -> str:
    """The job's id in what sbatch answers."""
    match = re.search(r"\d+", answer)
    if match is None:
        raise StageError(f"sbatch answered {answer.strip()!r}, which names no job")
    return match[0]


class _Watch:
    """Asks Slurm now and then what became of a job."""

    def __init__(self, job: str, logs: Path, poll_seconds: float) -> None:
        self.job, self.logs, self.poll_seconds = job, logs, poll_seconds
        self._asked_at = time.monotonic()
        self._told: set[str] = set()

    def ending(self) -> Ending | None:
        """See `follow`."""
        if time.monotonic() - self._asked_at < self.poll_seconds:
            return None
        self._asked_at = time.monotonic()
        elements = list(_elements(self.job))
        for _, _, reason in elements:
            if reason not in _USUAL_REASONS | self._told:
                self._told.add(reason)
                _LOG.warning("Slurm keeps job %s waiting: %s", self.job, reason)
        for name, state, _ in elements:
            if state not in _UNFINISHED and state != "COMPLETED":
                log = self.logs / f"{name}.out"
                return Ending(f"Slurm job {name} ended as {state} before its tasks were done; its log is {log}.", 5)
        if any(state in _UNFINISHED for _, state, _ in elements):
            return None
        return Ending(f"Slurm job {self.job} ended before all tasks were done; its logs are in {self.logs}.", 60)


def _elements(job: str) -> Iterator[tuple[str, str, str]]:
    """(name, state, why it waits) of the elements of an array job that Slurm still knows of."""
    command = ["squeue", "--noheader", "--array", "--states=all", f"--jobs={job}", "--format=%F_%K|%T|%r"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in answer.stdout.splitlines():
        name, state, reason = line.strip().split("|")
        yield name, state, reason if state == "PENDING" else "None"


def _end_forgotten_jobs(work: Work) -> None:
    """Cancel what an earlier run left behind that was killed itself: nobody follows those jobs any more."""
    for folder in launch_folders(work):
        _cancel(folder)


def _cancel(folder: Path) -> None:
    """End the job of a launch, if it was submitted, and wait until no process of it is left."""
    path = folder / _JOB_FILE
    if not path.exists():
        return
    job = path.read_text()
    with starting_processes():
        subprocess.run(["scancel", "--quiet", job], capture_output=True, check=False)
        _wait_until_over(job)


def _wait_until_over(job: str) -> None:
    deadline = time.monotonic() + _SECONDS_TO_END
    while time.monotonic() < deadline and any(state in _UNFINISHED for _, state, _ in _elements(job)):
        time.sleep(POLL_SECONDS)
