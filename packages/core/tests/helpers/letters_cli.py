"""The `letters` stage as a command of its own, run as `prep` runs its commands."""

from typing import Any

import click
from letters import STAGE

from tokenmill_core.cli.options import run_stage_command, stage_options
from tokenmill_core.cli.root import run_command


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@stage_options
def letters(inputs: tuple[str, ...], **options: Any) -> None:
    run_stage_command(STAGE, inputs, {}, options)


if __name__ == "__main__":
    run_command(letters, "letters", "Stopped. Finished tasks are kept: run the same command again to go on.")
