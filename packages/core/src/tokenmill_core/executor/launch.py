"""One run of a phase's tasks on a cluster, as a folder that its workers and we share.

    tasks ─▶ shares/RRRRR.json ─▶ worker of rank R ─▶ the tasks' reports in the work folder
                                        └▶ starts/RRRRR.N when begun, failures/RRRRR.json when it went wrong

The folder lies in the work folder and is new for every run, so that nothing an earlier run left decides what this one
does: what is done is said by the tasks' reports alone.
"""

import heapq
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import Field

from tokenmill_core import errors
from tokenmill_core.errors import StageError, TokenmillError
from tokenmill_core.executor.task import killed_error, run_task
from tokenmill_core.manifest import Frozen
from tokenmill_core.stage import Phase, Task, Work
from tokenmill_core.storage import write_atomic


class ClusterSettings(Frozen):
    """Settings of every executor that runs on a cluster."""

    cpus_per_worker: int = Field(default=1, ge=1)
    """CPU cores that a worker is given."""
    memory_gb_per_cpu: int = Field(default=2, ge=1)
    """Memory that a worker is given for each of its cores, in GiB."""
    shares_per_worker: int = Field(default=4, ge=1)
    """How finely tasks are shared out: more shares even out slow nodes, but starting each takes seconds."""
    max_restarts: int = Field(default=0, ge=0, le=3)
    """How often a share is begun again after its worker was killed or its node lost; its finished tasks are kept."""


@dataclass(frozen=True)
class Launch:
    """See the module's docstring."""

    folder: Path
    cwd: str
    """Where the command was given: relative paths in settings start there."""
    num_shares: int
    max_restarts: int

    @classmethod
    def create(
        cls, phase: Phase, tasks: Sequence[Task], work: Work, num_shares: int, settings: ClusterSettings
    ) -> "Launch":
        """A new launch of `tasks` in at most `num_shares` shares."""
        shares = cut_shares(tasks, num_shares)
        folder = _new_folder(_launches(work), phase.name)
        for name in ("shares", "starts", "failures"):
            (folder / name).mkdir()
        launch = cls(folder, os.getcwd(), len(shares), settings.max_restarts)
        for rank, share in enumerate(shares):
            write_atomic(launch._share(rank), orjson.dumps([asdict(task) for task in share]))
        return launch

    @property
    def stop_file(self) -> Path:
        """Tells workers to end, where it exists."""
        return self.folder / "stop"

    def path(self, name: str) -> Path:
        """A file or folder of the engine's own."""
        return self.folder / name

    def run_share(self, rank: int, phase: Phase, work: Work) -> None:
        """Run the tasks of one share that have no report yet: called in a worker.

        Errors: those of `run_task`; whatever it is, we are told of it by a file too.
        """
        try:
            os.chdir(self.cwd)
            self._begin(rank, phase)
            for values in orjson.loads(self._share(rank).read_bytes()):
                task = Task(**values)
                if not work.has_report(phase.name, task.index):
                    run_task(phase, task, work)
        except Exception as error:
            self.write_failure(f"{rank:05d}", error)
            raise

    def write_failure(self, name: str, error: Exception) -> None:
        """Tell whoever follows the launch that a process of it, called `name`, has failed."""
        write_atomic(self.folder / "failures" / f"{name}.json", orjson.dumps(_describe(error)))

    def raise_failure(self) -> None:
        """Raise what a process of the launch failed with, if one did: of several, the first in the order of shares."""
        for path in sorted((self.folder / "failures").glob("*.json")):
            raise _revive(orjson.loads(path.read_bytes()))

    def _share(self, rank: int) -> Path:
        return self.folder / "shares" / f"{rank:05d}.json"

    def _begin(self, rank: int, phase: Phase) -> None:
        """Engines begin a share again where its worker died; we allow it as often as the settings say."""
        for start in range(self.max_restarts + 1):
            with suppress(FileExistsError):
                (self.folder / "starts" / f"{rank:05d}.{start}").touch(exist_ok=False)
                return
        raise killed_error(phase.name)


def launch_folders(work: Work) -> list[Path]:
    """The folders of all launches so far."""
    return sorted(_launches(work).glob("*-*"))


def _launches(work: Work) -> Path:
    return work.folder.absolute() / "launches"


def _new_folder(parent: Path, name: str) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    number = 0
    while True:
        with suppress(FileExistsError):
            (folder := parent / f"{name}-{number}").mkdir()
            return folder
        number += 1


def cut_shares(tasks: Sequence[Task], num_shares: int) -> list[list[Task]]:
    """`tasks` in at most `num_shares` shares of about equal weight, the heaviest tasks first."""
    shares: list[list[Task]] = [[] for _ in range(min(num_shares, len(tasks)))]
    loads = [(0, rank) for rank in range(len(shares))]
    for task in sorted(tasks, key=lambda task: -task.weight):
        load, rank = heapq.heappop(loads)
        shares[rank].append(task)
        # A task costs something however little it reads, so shares of empty files are even too.
        heapq.heappush(loads, (load + max(task.weight, 1), rank))
    return shares


def _describe(error: Exception) -> dict[str, Any]:
    """An error of `run_task` as JSON."""
    if isinstance(error, OSError):
        return {"errno": error.errno, "message": error.strerror or str(error), "file": error.filename}
    name = type(error).__name__ if isinstance(error, TokenmillError) else "StageError"
    message = (
        str(error)
        if isinstance(error, TokenmillError)
        else f"a worker of the executor failed: {type(error).__name__}: {error}"
    )
    return {"class": name, "message": message}


def _revive(described: dict[str, Any]) -> Exception:
    if "errno" in described:
        return OSError(described["errno"], described["message"], described["file"])
    kind: type[TokenmillError] = getattr(errors, described["class"], StageError)
    return kind(described["message"])
