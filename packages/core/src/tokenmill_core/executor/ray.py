"""Ray, through datatrove's `RayPipelineExecutor`.

    prep ─▶ a driver process of its own ─▶ Ray ─▶ an actor a share ─▶ reports ─▶ prep

datatrove goes on with the other shares when one has failed, and takes its time to clean up when it is stopped. A driver
that can be killed has neither fault: Ray ends the actors of a driver that is gone.
"""

import multiprocessing
import os
import socket
import time
import warnings
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection

from tokenmill_core.errors import StageError
from tokenmill_core.executor.follow import Ending, follow
from tokenmill_core.executor.launch import ClusterSettings, Launch
from tokenmill_core.executor.processes import (
    PARENT_CHECK_SECONDS,
    exit_with_parent,
    kill_session,
    starting_processes,
)
from tokenmill_core.executor.task import OnDone
from tokenmill_core.stage import Phase, Task, Work

_OBJECT_STORE_BYTES = 100 << 20
"""Of a cluster that we start ourselves: what is sent through Ray is a stage, and never data."""
_SECONDS_TO_CONNECT = 120.0
_SECONDS_TO_FINISH = 30.0
_CONNECTED = "connected"
"""A file in the launch's folder: the driver is past the point where a cluster that dies would hold it for ever."""


class RaySettings(ClusterSettings):
    """Settings of `--executor ray`."""

    address: str | None = None
    """Address of the cluster, such as `auto` or `host:6379`; by default RAY_ADDRESS, or Ray is started here."""


class RayExecutor:
    """Actors of a Ray cluster, whose nodes share the output's file system and have the same packages installed."""

    def __init__(self, num_workers: int, settings: RaySettings) -> None:
        self.num_workers, self.settings = num_workers, settings
        self._driver: _Driver | None = None

    def close(self) -> None:
        """See `Executor.close`: nothing is kept."""

    def run(self, phase: Phase, tasks: Sequence[Task], work: Work, on_done: OnDone) -> None:
        """See `Executor.run`. A killed actor, node or driver ends the run with a `StageError`."""
        if not tasks:
            return
        num_shares = self.num_workers * self.settings.shares_per_worker
        launch = Launch.create(phase, tasks, work, num_shares, self.settings)
        try:
            driver = self._driver = self._driver or _Driver(self.num_workers, self.settings)
            driver.begin(launch, phase, Work(work.folder.absolute()))
            follow(launch, phase, tasks, work, on_done, driver.ending)
        except BaseException:
            self._drop_driver()
            raise
        if not driver.finish():
            self._drop_driver()

    def _drop_driver(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver = None


class _Driver:
    """The driver process, which keeps its connection to Ray from phase to phase. It ends with this object."""

    def __init__(self, num_workers: int, settings: RaySettings) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(
            target=_drive, args=(os.getpid(), other, num_workers, settings), name="ray driver", daemon=True
        )
        with starting_processes():
            self._process.start()
            self._end = weakref.finalize(self, kill_session, self._process)
        other.close()

    def begin(self, launch: Launch, phase: Phase, work: Work) -> None:
        """Have the driver run a launch."""
        self._launch, self._log, self._begun_at = launch, launch.path("driver.log"), time.monotonic()
        try:
            self._pipe.send(launch)
            self._pipe.send((phase, work))
        except ConnectionError as error:
            raise StageError("the process that drives Ray was killed: run the same command again to go on") from error

    def ending(self) -> Ending | None:
        """See `follow`."""
        if not self._process.is_alive() or self._pipe.poll():
            return Ending(f"Ray ended before all tasks were done; its log is {self._log}.", 10)
        late = time.monotonic() - self._begun_at > _SECONDS_TO_CONNECT
        if late and not self._launch.path(_CONNECTED).exists():
            return Ending(f"Ray does not answer; its log is {self._log}.", 0)
        return None

    def finish(self) -> bool:
        """Wait for the end of a launch whose tasks are all done; whether the driver can take another."""
        try:
            return self._pipe.poll(_SECONDS_TO_FINISH) and self._pipe.recv() is not None
        except EOFError:
            return False

    def kill(self) -> None:
        """End the driver and its workers, and give those the time that they take to notice."""
        self._launch.stop_file.touch()
        self._end()
        time.sleep(2 * PARENT_CHECK_SECONDS)


def _drive(parent: int, launches: Connection, num_workers: int, settings: RaySettings) -> None:
    """The driver process: run one launch after another on Ray."""
    os.setsid()
    exit_with_parent(parent)
    warnings.simplefilter("default")  # what libraries deprecate is for the log, however strict our own process is
    connected = False
    while True:
        launch = launches.recv()
        try:
            _log_to(launch)
            phase, work = launches.recv()
            if not connected:
                _connect(num_workers, settings)
                connected = True
            launch.path(_CONNECTED).touch()
            _run_shares(num_workers, settings, launch, phase, work)
        except Exception as error:
            launch.write_failure("driver", error)
            raise
        launches.send("over")


def _log_to(launch: Launch) -> None:
    with launch.path("driver.log").open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _connect(num_workers: int, settings: RaySettings) -> None:
    """Connect to the cluster, or start one, and see that a worker fits on a node of it: it would wait for ever."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    address = settings.address or os.environ.get("RAY_ADDRESS")
    if address:
        try:
            _knock(address)
            ray.init(address=address, log_to_driver=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise StageError(
                f"no Ray cluster at {address!r}: {error}; check the setting address, and if the cluster asks for a "
                "token, set RAY_AUTH_MODE=token"
            ) from error
    else:
        ray.init(
            num_cpus=num_workers * settings.cpus_per_worker,
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
        )
    needed = {"CPU": settings.cpus_per_worker, "memory": _memory_bytes(settings)}
    if not any(_fits(needed, node["Resources"]) for node in ray.nodes() if node["Alive"]):
        raise StageError(
            f"no node of the Ray cluster has the {settings.cpus_per_worker} cores and "
            f"{settings.cpus_per_worker * settings.memory_gb_per_cpu} GiB that a worker is to get: "
            "lower cpus_per_worker or memory_gb_per_cpu"
        )


def _knock(address: str) -> None:
    """Ray tries for minutes to reach a port where nobody listens; a socket knows at once."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


def _memory_bytes(settings: RaySettings) -> int:
    return settings.cpus_per_worker * settings.memory_gb_per_cpu << 30


def _fits(needed: dict[str, int], resources: dict[str, float]) -> bool:
    return all(resources.get(name, 0.0) >= amount for name, amount in needed.items())


def _run_shares(num_workers: int, settings: RaySettings, launch: Launch, phase: Phase, work: Work) -> None:
    from tokenmill_core.executor.share import ForkedShare, RayShares

    RayShares(
        pipeline=[ForkedShare(launch, phase, work)],
        tasks=launch.num_shares,
        workers=num_workers,
        cpus_per_task=settings.cpus_per_worker,
        mem_per_cpu_gb=settings.memory_gb_per_cpu,
        logging_dir=str(launch.path("datatrove")),
    ).run()
