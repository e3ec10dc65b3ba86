"""`pretrain run`."""

import time
from contextlib import suppress
from pathlib import Path

import click

from tokenmill_core.errors import TokenmillError
from tokenmill_trainer.cli.arguments import Place
from tokenmill_trainer.cli.settings import read_settings

SECONDS_FOR_RANK_0 = 2.0


@click.command()
@click.option("--config", "config_path", metavar="FILE", type=Place(), help="TOML file with the settings.")
@click.option(
    "--mixture", metavar="PATH", type=Place(), help="Mixture or packed dataset to train on, before data.mixture."
)
@click.option("--out", required=True, type=Place(path_type=Path), help="Folder of the run.")
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint that verifies.")
@click.option("--deepspeed", metavar="FILE", type=Place(), help="DeepSpeed config whose settings are taken over.")
@click.option(
    "--init-from", metavar="MODEL", type=Place(), help="Start from the weights of this model: exported, or imported."
)
@click.option("--set", "overrides", multiple=True, metavar="A.B=VALUE", help="Set one setting; repeatable.")
@click.option("--profile", metavar="FIRST:LAST", help="Steps that torch.profiler records; the same as logging.profile.")
@click.option("--data-log", type=Place(path_type=Path), help="File that gets each step's global sample indices.")
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
    deepspeed: str | None,
    init_from: str | None,
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
      pretrain run --config run.toml --deepspeed ds.json --out runs/moved
      pretrain run --config run.toml --init-from models/smollm --out runs/continued
      pretrain run --config run.toml --out runs/watched --set 'trackers.kinds=["tensorboard"]' --profile 10:15
      pretrain run --out runs/first --resume
      pretrain run --out runs/first --resume --set training.steps=2000 --allow-change schedule
      pretrain run --out runs/first --resume --mixture data/second.json    # mixed with --continue data/mixture.json
      torchrun --nproc-per-node 2 -m tokenmill_trainer run --config run.toml --out runs/two
    """
    from tokenmill_trainer.guard.plain_words import RankError, plain_words
    from tokenmill_trainer.loop import train
    from tokenmill_trainer.world import is_main_process

    if profile is not None:
        overrides = (*overrides, f'logging.profile="{profile}"')
    try:
        config = read_settings(config_path, mixture, out, resume, overrides, init_from=init_from, deepspeed=deepspeed)
        with plain_words():
            return train(config, out, resume=resume, allow_changes=allow_changes, data_log=data_log)
    except TokenmillError as error:
        if is_main_process() or isinstance(error, RankError):
            raise
        # Every rank has met this error and rank 0 tells it. torchrun ends the others as soon as one has gone.
        with suppress(KeyboardInterrupt):
            time.sleep(SECONDS_FOR_RANK_0)
        return error.exit_code
