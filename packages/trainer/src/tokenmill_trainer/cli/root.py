"""`pretrain`: torch is imported by the commands, so that help comes at once."""

import os
from typing import NoReturn

import click

from tokenmill_core.cli.root import EXIT_CODES, run_command
from tokenmill_trainer import __version__
from tokenmill_trainer.cli.evaluate import evaluate
from tokenmill_trainer.cli.inspect import checkpoints, trace
from tokenmill_trainer.cli.report import report
from tokenmill_trainer.cli.run import run
from tokenmill_trainer.cli.use import export, import_, sample


@click.group(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pretrain")
def pretrain() -> None:
    """From a mixture to a language model.

    \b
    Examples:
      pretrain run --config run.toml --mixture data/mixture.json --out runs/first
      torchrun --nproc-per-node 8 -m tokenmill_trainer run --config run.toml --out runs/first
      pretrain run --out runs/first --resume
      pretrain sample runs/first --prompt "Once upon a time"
      pretrain export runs/first --out models/first
      pretrain report runs/first
    """


for command in (run, sample, export, import_, evaluate, checkpoints, trace, report):
    pretrain.add_command(command)


def main() -> NoReturn:
    """Entry point of `pretrain`."""
    # Spinning while waiting gains OpenMP 3 % on a quiet machine, and costs it four fifths where another process runs.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    run_command(pretrain, "pretrain", "Stopped. What was saved is whole: run the same command again.")
