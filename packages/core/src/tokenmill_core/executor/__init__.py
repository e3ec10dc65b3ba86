"""Where tasks run: on this machine, on Ray, or on Slurm. All give the same bytes."""

from tokenmill_core.executor.local import LocalExecutor
from tokenmill_core.executor.ray import RayExecutor, RaySettings
from tokenmill_core.executor.registry import EXECUTORS, open_executor
from tokenmill_core.executor.slurm import SlurmExecutor, SlurmSettings
from tokenmill_core.executor.task import Executor, run_task

__all__ = [
    "EXECUTORS",
    "Executor",
    "LocalExecutor",
    "RayExecutor",
    "RaySettings",
    "SlurmExecutor",
    "SlurmSettings",
    "open_executor",
    "run_task",
]
