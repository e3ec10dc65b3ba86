"""Where the settings of `pretrain run` come from.

--init-from: the model's    <  --config FILE  <  --deepspeed FILE  <  --mixture  <  --set
on --resume without --config: those of the run itself                <  --mixture  <  --set
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenmill_core import storage
from tokenmill_core.config import apply_override, merge, read_toml, validate_config
from tokenmill_core.errors import ConfigError, InputError

if TYPE_CHECKING:
    from tokenmill_trainer.config import RunConfig


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

    folder = RunFolder(out)
    if not resume:
        folder.check_free()
    elif config_path is None and folder.has_run:
        mixture = mixture or locate_mixture(folder)
        config_path = str(folder.config_file)
    if config_path is None and mixture is None:
        raise InputError("name what to train on: --mixture PATH, and --config FILE for the settings")
    values = read_toml(config_path) if config_path else {}
    if deepspeed is not None:
        values = _with_deepspeed(values, deepspeed, None if resume else config_path)
    values = merge(values, _options(mixture, init_from))
    for override in overrides:
        apply_override(values, override)
    config = validate_config(RunConfig, values if resume else _with_initial_model(values), config_path or "settings")
    if resume and not config.data.mixture and folder.has_run:
        config = _with_mixture(config, locate_mixture(folder))
    return _with_absolute_places(config)


def _options(mixture: str | None, init_from: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {"data": {"mixture": mixture}} if mixture else {}
    return {**options, "init_from": init_from} if init_from else options


def _with_deepspeed(values: dict[str, Any], path: str, config_path: str | None) -> dict[str, Any]:
    """`values` with those of the DeepSpeed config on top; the file `config_path` must not say otherwise."""
    from tokenmill_trainer.deepspeed import read_deepspeed
    from tokenmill_trainer.world import is_main_process

    translated = read_deepspeed(path, int(os.environ.get("WORLD_SIZE", "1")))
    if config_path is not None:
        _refuse_contradictions(values, translated.settings, config_path, path)
    if translated.hints and is_main_process():
        click.echo(f"{path}: nothing to set here for {', '.join(translated.hints)}", err=True)
    return merge(values, translated.settings)


def _refuse_contradictions(
    ours: dict[str, Any], theirs: dict[str, Any], our_file: str, their_file: str, path: str = ""
) -> None:
    for name in sorted(ours.keys() & theirs.keys()):
        mine, other = ours[name], theirs[name]
        if isinstance(mine, dict) and isinstance(other, dict):
            _refuse_contradictions(mine, other, our_file, their_file, f"{path}{name}.")
        elif mine != other:
            raise ConfigError(
                f"{path}{name}: {mine!r} in {our_file}, but {their_file} comes to {other!r}; take one of them out"
            )


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
