"""`pretrain run`."""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokenmill_core import storage
from tokenmill_core.cli.options import gather_config
from tokenmill_core.errors import InputError, TokenmillError

if TYPE_CHECKING:
    from tokenmill_trainer.config import RunConfig

SECONDS_FOR_RANK_0 = 2.0


@click.command()
@click.option("--config", "config_path", metavar="FILE", help="TOML file with the settings.")
@click.option("--mixture", metavar="PATH", help="Mixture or packed dataset to train on, before data.mixture.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the run.")
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint that verifies.")
@click.option("--set", "overrides", multiple=True, metavar="A.B=VALUE", help="Set one setting; repeatable.")
@click.option("--profile", metavar="FIRST:LAST", help="Steps that torch.profiler records; the same as logging.profile.")
@click.option("--data-log", type=click.Path(path_type=Path), help="File that gets each step's global sample indices.")
@click.option(
    "--allow-change",
    "allow_changes",
    multiple=True,
    type=click.Choice(["schedule", "optimizer", "precision"]),
    help="On --resume, settings that may differ from the checkpoint's; repeatable.",
)
def run(
    config_path: str | None,
    mixture: str | None,
    out: Path,
    resume: bool,
    overrides: tuple[str, ...],
    profile: str | None,
    data_log: Path | None,
    allow_changes: tuple[str, ...],
) -> int:
    """Train a model, or go on training it.

    Every setting stands in docs/settings.md. Under torchrun every process runs this command. SIGTERM or Ctrl-C finishes
    the step, saves, and ends with code 75.

    \b
    Examples:
      pretrain run --config run.toml --mixture data/mixture.json --out runs/first
      pretrain run --config run.toml --out runs/second --set optimizer.lr=1e-3 --set training.steps=200
      pretrain run --config run.toml --out runs/watched --set 'trackers.kinds=["tensorboard"]' --profile 10:15
      pretrain run --out runs/first --resume
      pretrain run --out runs/first --resume --set training.steps=2000 --allow-change schedule
      pretrain run --out runs/first --resume --mixture data/second.json    # mixed with --continue data/mixture.json
      torchrun --nproc-per-node 2 -m tokenmill_trainer run --config run.toml --out runs/two
    """
    from tokenmill_trainer.loop import train
    from tokenmill_trainer.world import is_main_process

    if profile is not None:
        overrides = (*overrides, f'logging.profile="{profile}"')
    try:
        config = read_settings(config_path, mixture, out, resume, overrides)
        return train(config, out, resume=resume, allow_changes=allow_changes, data_log=data_log)
    except TokenmillError as error:
        if is_main_process():
            raise
        # Every rank has met this error and rank 0 tells it. torchrun ends the others as soon as one has gone.
        with suppress(KeyboardInterrupt):
            time.sleep(SECONDS_FOR_RANK_0)
        return error.exit_code


def read_settings(
    config_path: str | None, mixture: str | None, out: Path, resume: bool, overrides: tuple[str, ...]
) -> "RunConfig":
    """The settings of the run: the file's, or on `resume` without a file those of the run itself; then the options."""
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
    settings: dict[str, Any] = {"data": {"mixture": mixture}} if mixture else {}
    config = gather_config(RunConfig, settings, config_path, overrides)
    assert isinstance(config, RunConfig)
    if resume and not config.data.mixture and folder.has_run:
        config = _with_mixture(config, locate_mixture(folder))
    return _with_absolute_mixture(config)


def _with_absolute_mixture(config: "RunConfig") -> "RunConfig":
    """So that the settings kept with the run name the same file from any working directory."""
    path = config.data.mixture
    if not path or not storage.is_local(path):
        return config
    return _with_mixture(config, os.path.abspath(path))


def _with_mixture(config: "RunConfig", path: str) -> "RunConfig":
    return config.model_copy(update={"data": config.data.model_copy(update={"mixture": path})})
