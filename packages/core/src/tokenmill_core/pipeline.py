"""Recipes: a TOML file of steps that `prep run` brings up to date in the order of their references.

    [steps.clean]              stage = "clean"     inputs = ["raw/*.jsonl"]     config = { min_words = 20 }
    [steps.tokens]             stage = "tokenize"  inputs = ["@clean"]          config = { tokenizer = "@tokenizer" }

`@name` stands for the output of step `name`. Paths are relative to the recipe's own folder.
"""

import importlib.metadata
import re
from collections.abc import Callable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import Field

from tokenmill_core import storage
from tokenmill_core.build import Built, build_stage
from tokenmill_core.config import load_config, validate_config
from tokenmill_core.errors import ConfigError
from tokenmill_core.executor import Executor
from tokenmill_core.manifest import Frozen
from tokenmill_core.stage import StageType

_REFERENCE = re.compile(r"@([\w.-]*\w)")


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
    steps: dict[str, Step] = Field(min_length=1)


def load_recipe(path: str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe at `path`, with `steps.name.config.setting=value` overrides."""
    return load_config(Recipe, path, overrides)


def run_recipe(
    path: str, recipe: Recipe, executor: Executor, on_step: Callable[[str, Built], None], *, force: bool = False
) -> dict[str, Built]:
    """Bring every step's output up to date, those that others need first; `on_step` hears of each as it is done."""
    base = storage.parent(path)
    types = {name: stage_type(step.stage, f"{path}: steps.{name}.stage") for name, step in recipe.steps.items()}
    outs = {name: _output(recipe, name, types[name], base) for name in recipe.steps}
    built = {}
    for name in order_of_steps(path, recipe):
        step = recipe.steps[name]
        where = f"{path}: steps.{name}"
        config = validate_config(types[name].config, _resolve(step.config, outs, where), f"{where}.config")
        inputs = [_input(argument, outs, base, where) for argument in step.inputs]
        stage = types[name].build(config, inputs, step.name or name)
        built[name] = build_stage(stage, outs[name], executor, force=force)
        on_step(name, built[name])
    return built


def order_of_steps(path: str, recipe: Recipe) -> list[str]:
    """Step names such that each comes after those it refers to, otherwise as they stand in the recipe."""
    graph = {
        name: _references([*step.inputs, step.config]) & recipe.steps.keys() for name, step in recipe.steps.items()
    }
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


def _output(recipe: Recipe, name: str, kind: StageType, base: str) -> str:
    relative = recipe.steps[name].out or storage.join(recipe.out, name + kind.suffix)
    return storage.from_relative(relative, base)


def _references(value: Any) -> set[str]:
    if isinstance(value, str):
        return set(_REFERENCE.findall(value))
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return set().union(*map(_references, children))


def _input(argument: str, outs: Mapping[str, str], base: str, where: str) -> str:
    if "@" in argument:
        resolved: str = _resolve(argument, outs, f"{where}.inputs")
        return resolved
    name, equals, path = argument.rpartition("=")
    return f"{name}{equals}{storage.from_relative(path, base)}"


def _resolve(value: Any, outs: Mapping[str, str], where: str) -> Any:
    """`value` with every `@name` of a step replaced by its output."""
    if isinstance(value, Mapping):
        return {key: _resolve(child, outs, where) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_resolve(child, outs, where) for child in value]
    if not isinstance(value, str):
        return value
    unknown = _references(value) - outs.keys()
    if unknown and where.endswith(".inputs"):
        raise ConfigError(f"{where}: no step {sorted(unknown)[0]!r}; the steps are {', '.join(outs)}")
    return _REFERENCE.sub(lambda match: outs.get(match[1], match[0]), value)
