"""Where the settings of `pretrain run` come from.

--init-from: the model's    <  --config FILE  <  --deepspeed FILE  <  --mixture  <  --set
on --resume without --config: those of the run itself                <  --mixture  <  --set
"""

import math
import os
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenmill_core import storage
from tokenmill_core.config import Location, apply_override, merge, origin, read_toml, validate_config
from tokenmill_core.errors import ConfigError, InputError

if TYPE_CHECKING:
    from tokenmill_trainer.config import RunConfig

INSTEAD = {("training", "steps"): "tokens", ("schedule", "warmup_steps"): "warmup_tokens"}
"""Settings that say the same as another, and before it."""


def read_settings(
    config_path: str | None,
    mixture: str | None,
    out: Path,
    resume: bool,
    overrides: tuple[str, ...],
    *,
    init_from: str | None = None,
    deepspeed: str | None = None,
) -> "RunConfig":
    """The settings of the run in folder `out`, with places as absolute paths, so that they hold from anywhere."""
    from tokenmill_trainer.config import RunConfig
    from tokenmill_trainer.run_folder import RunFolder, locate_mixture

    folder, given = RunFolder(out), config_path
    if not resume:
        folder.check_free()
    elif config_path is None and folder.has_run:
        mixture = mixture or locate_mixture(folder)
        config_path = str(folder.config_file)
    if config_path is None and mixture is None:
        if resume:
            raise InputError(f"{out}: no run to go on with; name the --out of a `pretrain run`, or what to train on")
        raise InputError("name what to train on: --mixture PATH, and --config FILE for the settings")
    values = read_toml(config_path) if config_path else {}
    theirs = _from_deepspeed(values, overrides, deepspeed) if deepspeed else {}
    if deepspeed and config_path:
        _refuse_contradictions(values, theirs, config_path, deepspeed, whole=given is not None)
    values = merge(merge(values, theirs), _options(mixture, init_from))
    for override in overrides:
        apply_override(values, override)
    file_of = partial(_file_of, values, theirs, config_path or "settings", deepspeed)
    config = validate_config(
        RunConfig,
        values if resume else _with_initial_model(values),
        lambda location: origin(location, file_of(location), overrides),
    )
    if resume and not config.data.mixture and folder.has_run:
        config = _with_mixture(config, locate_mixture(folder))
    return _with_absolute_places(config)


def _options(mixture: str | None, init_from: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {"data": {"mixture": mixture}} if mixture else {}
    return {**options, "init_from": init_from} if init_from else options


def _from_deepspeed(values: dict[str, Any], overrides: tuple[str, ...], path: str) -> dict[str, Any]:
    """What the DeepSpeed config at `path` comes to in a run that has `values` and `overrides` otherwise."""
    from tokenmill_trainer.deepspeed import RunValues, read_deepspeed
    from tokenmill_trainer.world import is_main_process

    values = deepcopy(values)
    for override in overrides:
        apply_override(values, override)
    translated = read_deepspeed(path, RunValues.of(values, int(os.environ.get("WORLD_SIZE", "1"))))
    if translated.hints and is_main_process():
        click.echo(f"{path}: nothing to set here for {', '.join(translated.hints)}", err=True)
    # A section that is a value there is for validation to refuse.
    return {name: section for name, section in translated.settings.items() if isinstance(values.get(name, {}), dict)}


def _refuse_contradictions(
    ours: dict[str, Any], theirs: dict[str, Any], our_file: str, their_file: str, *, whole: bool
) -> None:
    """`ConfigError` where the two say different things; unless `whole`, only where theirs would have no effect."""
    for section, name, value in ((section, *item) for section, settings in theirs.items() for item in settings.items()):
        mine, instead = ours.get(section, {}), INSTEAD.get((section, name), "")
        if instead in mine:
            clash = instead
        elif whole and name in mine and not _same(mine[name], value):
            clash = name
        else:
            continue
        raise ConfigError(
            f"{section}.{clash}: {mine[clash]!r} in {our_file}, but {their_file} comes to {section}.{name} {value!r}; "
            "take one of them out"
        )


def _same(mine: Any, other: Any) -> bool:
    """Equal, but for the last digits of a ratio."""
    if isinstance(mine, float) and isinstance(other, float):
        return math.isclose(mine, other, rel_tol=1e-9)
    return bool(mine == other)


def _file_of(
    values: dict[str, Any], theirs: dict[str, Any], ours: str, deepspeed: str | None, location: Location
) -> str:
    """The file to name in a message about the setting at `location`; both where it is about several."""
    section, name = [str(part) for part in (*location, "", "")[:2]]
    if deepspeed is None or (section and section not in theirs):
        return ours
    if not name:
        return f"{ours} and {deepspeed}"
    settings = theirs[section]
    return deepspeed if name in settings and values[section].get(name) == settings[name] else ours


def _with_initial_model(values: dict[str, Any]) -> dict[str, Any]:
    from tokenmill_trainer.initial_weights import with_model_settings

    path = values.get("init_from")
    return with_model_settings(values, path) if isinstance(path, str) else values


def _with_absolute_places(config: "RunConfig") -> "RunConfig":
    if config.init_from is not None:
        config = config.model_copy(update={"init_from": _absolute(config.init_from)})
    return _with_mixture(config, _absolute(config.data.mixture))


def _absolute(path: str) -> str:
    return os.path.abspath(path) if path and storage.is_local(path) else path


def _with_mixture(config: "RunConfig", path: str) -> "RunConfig":
    return config.model_copy(update={"data": config.data.model_copy(update={"mixture": path})})
