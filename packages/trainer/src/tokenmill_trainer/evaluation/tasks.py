"""Running tasks of lm-evaluation-harness and keeping what came out.

RUN | MODEL ─ EvaluatedModel ─ HarnessModel ─ lm_eval ─▶ results, with the digest of what was evaluated
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from tokenmill_core import storage
from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.manifest_io import input_ref
from tokenmill_trainer import __version__
from tokenmill_trainer.evaluation.evaluated_model import EvaluatedModel

KEPT = ("results", "groups", "versions", "n-shot", "n-samples", "higher_is_better")
"""Parts of the harness's answer that are kept: the rest repeats the task files, or names the machine."""

BOOTSTRAPS = 1000
"""Resamplings behind the standard error of a metric that has no formula for it."""


def run_tasks(
    evaluated: EvaluatedModel,
    tasks: Sequence[str],
    *,
    tasks_path: Path | None = None,
    limit: int | None = None,
    num_fewshot: int | None = None,
    batch_size: int = 8,
    on_batch: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """The harness's figures for `tasks`, on the first `limit` documents of each if given.

    `on_batch` is called before each forward. Errors: `ConfigError` as of `task_manager`.
    """
    manager = task_manager(tasks, tasks_path, "--tasks")
    import lm_eval

    from tokenmill_trainer.evaluation.harness import HarnessModel

    found = lm_eval.simple_evaluate(
        model=HarnessModel(evaluated, batch_size, on_batch),
        tasks=list(tasks),
        num_fewshot=num_fewshot,
        limit=limit,
        log_samples=False,
        bootstrap_iters=BOOTSTRAPS,
        task_manager=manager,
    )
    found = found or {}  # on ranks other than 0 it gives nothing
    return {name: found[name] for name in KEPT if name in found} | {
        "limit": limit,
        "tools": {"tokenmill-trainer": __version__, "torch": torch.__version__, "lm-eval": lm_eval.__version__},
    }


def task_manager(tasks: Sequence[str], tasks_path: Path | None, setting: str) -> Any:
    """The harness's, which knows all of `tasks`.

    Errors: `ConfigError` where the harness is not installed or has no task of such a name; `setting` named them.
    """
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise ConfigError(
            f'lm-evaluation-harness cannot be imported ({error}): pip install "tokenmill-trainer[eval]"'
        ) from error
    if tasks_path is not None and not tasks_path.is_dir():
        raise ConfigError(f"{setting}: {tasks_path}, where its files should be, is no folder")
    manager = TaskManager(include_path=None if tasks_path is None else str(tasks_path))
    unknown = [task for task in tasks if not manager.match_tasks([task])]
    if unknown:
        raise ConfigError(
            f"{setting}: {','.join(unknown)}: no such task; name the folder of task files of your own by --tasks-path, "
            "or harness.tasks_path in a run's settings"
        )
    return manager


def check_tasks(tasks: Sequence[str], tasks_path: Path | None, setting: str) -> None:
    """The tasks can be loaded, with their documents; or `ConfigError`, before hours are spent on the way to them."""
    manager = task_manager(tasks, tasks_path, setting)
    from lm_eval.tasks import get_task_dict

    try:
        get_task_dict(list(tasks), manager)
    except Exception as error:  # whatever the task's own code, or the hub that has its documents, raises
        raise ConfigError(f"{setting}: {','.join(tasks)} cannot be loaded: {type(error).__name__}: {error}") from error


def figures(results: dict[str, Any]) -> dict[str, float]:
    """`task/metric` (with `,filter` if it has one) to value: the figures of `results` without their errors."""
    found = {}
    for task, metrics in results.get("results", {}).items():
        for name, value in metrics.items():
            metric, _, used = name.partition(",")
            if isinstance(value, int | float) and used and not metric.endswith("_stderr"):
                found[f"{task}/{metric}" if used == "none" else f"{task}/{name}"] = float(value)
    return found


def with_lineage(results: dict[str, Any], evaluated: EvaluatedModel, out: Path | None) -> dict[str, Any]:
    """`results` with a reference to what was evaluated, as manifests have it, seen from the folder of file `out`."""
    folder = Path.cwd() if out is None else out.resolve().parent
    return {"inputs": [input_ref(evaluated.loaded, str(folder)).model_dump(mode="json")], **results}


def check_out(out: Path | None) -> None:
    """A new file can be written there, or `InputError`: evaluations take long, so this comes first."""
    if out is None:
        return
    if out.exists():
        raise InputError(f"--out {out}: exists already; name another file, or remove it first")
    out.parent.mkdir(parents=True, exist_ok=True)


def write_results(results: dict[str, Any], out: Path) -> None:
    """As indented JSON, whole or not at all."""
    text = json.dumps(results, indent=2, ensure_ascii=False, default=str) + "\n"
    storage.write_atomic(out, text.encode("utf-8"))
