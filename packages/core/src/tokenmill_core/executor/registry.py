"""The executors by name, with the settings of each."""

import importlib.util
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tokenmill_core.config import apply_override, read_toml, validate_config
from tokenmill_core.errors import ConfigError
from tokenmill_core.executor.local import LocalExecutor
from tokenmill_core.executor.ray import RayExecutor, RaySettings
from tokenmill_core.executor.slurm import SlurmExecutor, SlurmSettings
from tokenmill_core.executor.task import Executor
from tokenmill_core.manifest import Frozen


class LocalSettings(Frozen):
    """`--executor local` has no settings but `--workers`."""


@dataclass(frozen=True)
class ExecutorType:
    """An executor as the command line offers it."""

    settings: type[Frozen]
    make: Callable[[int, Any], Executor]
    """(number of workers, settings) ─▶ the executor."""
    modules: tuple[str, ...] = ()
    """What has to be installed: the extra of the executor's own name brings it."""
    commands: tuple[str, ...] = ()
    """What has to be on PATH."""


EXECUTORS = {
    "local": ExecutorType(LocalSettings, lambda num_workers, _: LocalExecutor(num_workers)),
    "ray": ExecutorType(RaySettings, RayExecutor, modules=("datatrove", "ray")),
    "slurm": ExecutorType(
        SlurmSettings, SlurmExecutor, modules=("datatrove",), commands=("sbatch", "squeue", "scancel")
    ),
}


def open_executor(name: str, num_workers: int, path: str | None = None, overrides: Sequence[str] = ()) -> Executor:
    """The executor called `name`, with settings from the table `[executor]` of a TOML file and NAME=VALUE overrides.

    Errors: `ConfigError` for settings that it does not have, or where what it needs is not installed.
    """
    kind = EXECUTORS[name]
    values = read_toml(path) if path else {}
    table = values.pop("executor", {})
    if values or not isinstance(table, dict):
        raise ConfigError(f"{path}: expected one table, [executor] (got {', '.join(values) or 'a value'})")
    for override in overrides:
        apply_override(table, override, option="--executor-set")
    settings = validate_config(kind.settings, table, f"{path}: executor" if path else f"--executor {name}")
    _check_installed(name, kind)
    return kind.make(num_workers, settings)


def _check_installed(name: str, kind: ExecutorType) -> None:
    if missing := [module for module in kind.modules if importlib.util.find_spec(module) is None]:
        raise ConfigError(
            f"--executor {name} needs {' and '.join(missing)}: run pip install 'tokenmill-core[{name}]', here and on "
            "every node"
        )
    if absent := [command for command in kind.commands if shutil.which(command) is None]:
        raise ConfigError(f"--executor {name}: no {absent[0]} on PATH: run this where jobs can be submitted")
