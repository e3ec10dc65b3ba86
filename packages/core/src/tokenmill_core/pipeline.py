"""Recipes: a TOML file of steps that `prep run` brings up to date in the order of their references.

    [steps.clean]              stage = "clean"     inputs = ["raw/*.jsonl"]     config = { min_words = 20 }
    [steps.tokens]             stage = "tokenize"  inputs = ["@clean"]          config = { tokenizer = "@tokenizer" }

`@name` stands for the output of step `name`. Paths are relative to the recipe's own folder.
"""

import importlib.metadata
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any

from pydantic import BaseModel, Field

from tokenmill_core import storage
from tokenmill_core.build import Built, build_stage
from tokenmill_core.config import load_config, validate_config
from tokenmill_core.errors import ConfigError
from tokenmill_core.executor import Executor
from tokenmill_core.manifest import Frozen
from tokenmill_core.stage import StageType

_STEP_NAME = r"@([\w.-]*\w)"
_IN_SETTING = re.compile(_STEP_NAME)
_IN_INPUT = re.compile(rf"(?:([^=/]+)=)?{_STEP_NAME}(.*)", re.DOTALL)
"""An INPUT that refers to a step: `@name` or `NAME=@name`, and what may follow it, such as `:0.5`."""


class Step(Frozen):
    """One stage to run."""

    stage: str
    """Name of the command, such as `clean` or `tokenize`."""
    inputs: tuple[str, ...] = ()
    """INPUT arguments as on the command line; `@name` is the output of another step."""
    out: str | None = None
    """Where to write; by default `<recipe's out>/<step name>`."""
    name: str | None = None
    """Name of the dataset; by default the step's."""
    config: dict[str, Any] = {}
    """The stage's settings."""


class Recipe(Frozen):
    """A whole recipe."""

    out: str
    """Folder for the outputs of all steps, relative to the recipe."""
    steps: dict[Annotated[str, Field(pattern=r"^\w[\w.-]*$")], Step] = Field(min_length=1)


def load_recipe(path: str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe at `path`, with `steps.name.config.setting=value` overrides."""
    return load_config(Recipe, path, overrides)


def run_recipe(
    path: str, recipe: Recipe, executor: Executor, on_step: Callable[[str, Built], None], *, force: bool = False
) -> dict[str, Built]:
    """Bring every step's output up to date, those that others need first; `on_step` hears of each as it is done.

    Errors: `ConfigError` for a mistake in any step, before the first one runs; whatever the steps raise.
    """
    outs = _outputs(path, recipe)
    plans = {name: _plan(path, name, recipe.steps[name], outs) for name in order_of_steps(path, recipe)}
    built = {}
    for name, plan in plans.items():
        stage = plan.type.build(plan.config, plan.inputs, recipe.steps[name].name or name)
        built[name] = build_stage(stage, outs[name], executor, force=force)
        on_step(name, built[name])
    return built


def order_of_steps(path: str, recipe: Recipe) -> list[str]:
    """Step names such that each comes after those it refers to, otherwise as they stand in the recipe."""
    graph = {name: _references(step) & recipe.steps.keys() for name, step in recipe.steps.items()}
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise ConfigError(f"{path}: these steps wait for each other: {' -> '.join(error.args[1])}") from error


def stage_type(name: str, where: str) -> StageType:
    """The stage called `name`, from whichever package offers it."""
    entries = {entry.name: entry for entry in importlib.metadata.entry_points(group="tokenmill.stages")}
    if name not in entries:
        raise ConfigError(f"{where}: no stage {name!r}; installed are {', '.join(sorted(entries))}")
    found: StageType = entries[name].load()
    return found


@dataclass(frozen=True)
class _Plan:
    """What to build a step's stage from: settings checked, paths resolved."""

    type: StageType
    config: BaseModel
    inputs: list[str]


def _plan(path: str, name: str, step: Step, outs: Mapping[str, str]) -> _Plan:
    where, base = f"{path}: steps.{name}", storage.parent(path)
    kind = stage_type(step.stage, f"{where}.stage")
    settings = _resolve_settings(step.config, kind.path_settings, outs, base, f"{where}.config")
    return _Plan(
        type=kind,
        config=validate_config(kind.config, settings, f"{where}.config"),
        inputs=[_resolve_input(argument, kind, outs, base, f"{where}.inputs") for argument in step.inputs],
    )


def _resolve_settings(
    settings: Mapping[str, Any], paths: Sequence[str], outs: Mapping[str, str], base: str, where: str
) -> dict[str, Any]:
    """Settings with `@name` resolved; those that `paths` names, as `section.name`, are paths relative to `base`."""
    resolved: dict[str, Any] = {}
    for key, value in settings.items():
        below = [path.removeprefix(f"{key}.") for path in paths if path.startswith(f"{key}.")]
        if isinstance(value, Mapping):
            resolved[key] = _resolve_settings(value, below, outs, base, f"{where}.{key}")
        elif key in paths:
            resolved[key] = _resolve_path(value, outs, base, f"{where}.{key}")
        elif below and isinstance(value, list | tuple):
            resolved[key] = [
                _resolve_settings(item, below, outs, base, f"{where}.{key}") if isinstance(item, Mapping) else item
                for item in value
            ]
        else:
            resolved[key] = _resolve(value, outs)
    return resolved


def _outputs(path: str, recipe: Recipe) -> dict[str, str]:
    """Where each step writes; no two to the same place."""
    outs: dict[str, str] = {}
    for name, step in recipe.steps.items():
        suffix = stage_type(step.stage, f"{path}: steps.{name}.stage").suffix
        out = storage.from_relative(step.out or storage.join(recipe.out, name + suffix), storage.parent(path))
        if out in outs.values():
            other = next(other for other, place in outs.items() if place == out)
            raise ConfigError(f"{path}: steps.{name}.out: step {other!r} writes to {out} too; give each its own")
        outs[name] = out
    return outs


def _references(step: Step) -> set[str]:
    """Names that stand behind an `@`, be they steps or not."""
    in_inputs = {match[2] for match in map(_IN_INPUT.fullmatch, step.inputs) if match}
    return in_inputs | {name for text in _strings(step.config) for name in _IN_SETTING.findall(text)}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for child in children:
        yield from _strings(child)


def _resolve_input(argument: str, kind: StageType, outs: Mapping[str, str], base: str, where: str) -> str:
    """An INPUT with its step replaced by the step's output, or its path made independent of the current folder."""
    name, equals, path = argument.partition("=") if kind.named_inputs else ("", "", argument)
    return f"{name}{equals}{_resolve_path(path, outs, base, where)}"


def _resolve_path(value: Any, outs: Mapping[str, str], base: str, where: str) -> Any:
    if isinstance(value, list | tuple):
        return [_resolve_path(child, outs, base, where) for child in value]
    if not isinstance(value, str):
        return value  # the setting's own type says what is wrong with it
    match = _IN_INPUT.fullmatch(value)
    if match is None or match[1] is not None:
        return storage.from_relative(value, base)
    if match[2] not in outs:
        raise ConfigError(f"{where}: no step {match[2]!r}; the steps are {', '.join(outs)}")
    return outs[match[2]] + match[3]


def _resolve(value: Any, outs: Mapping[str, str]) -> Any:
    """A setting with every `@name` of a step replaced by its output; an `@` before anything else is left alone."""
    if isinstance(value, Mapping):
        return {key: _resolve(child, outs) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_resolve(child, outs) for child in value]
    return _IN_SETTING.sub(lambda match: outs.get(match[1], match[0]), value) if isinstance(value, str) else value
