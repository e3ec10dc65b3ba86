"""The root of `prep`, and how every command ends: a message and an exit code, never a traceback for a mistake."""

import errno
import importlib.metadata
import logging
import os
import signal
import sys
from typing import Any, NoReturn

import click

from tokenmill_core.errors import ExitCode, TokenmillError

EXIT_CODES = (
    "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 verification failed; 75 stopped by a signal, run again; "
    "76 training hung."
)


class EntryPointGroup(click.Group):
    """Subcommands from the entry point group `tokenmill.commands`, imported only when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all installed subcommands."""
        return sorted(entry.name for entry in importlib.metadata.entry_points(group="tokenmill.commands"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand, imported now."""
        for entry in importlib.metadata.entry_points(group="tokenmill.commands", name=cmd_name):
            try:
                command: click.Command = entry.load()
            except ImportError as error:
                return _unusable(cmd_name, error)
            return command
        return None


def _unusable(name: str, error: ImportError) -> click.Command:
    """What stands for a command whose package is broken or lacks a dependency: the others still work."""

    def fail(arguments: tuple[str, ...]) -> NoReturn:
        raise TokenmillError(f"{name} cannot be loaded: {error}; install its package again, with its dependencies")

    return click.Command(
        name,
        callback=fail,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        short_help=f"(cannot be loaded: {error})",
    )


@click.group(cls=EntryPointGroup, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(importlib.metadata.version("tokenmill-core"), prog_name="prep")
def prep() -> None:
    """From raw text to training data, one manifest at a time.

    \b
    Examples:
      prep clean corpus/*.jsonl.zst --out data/clean
      prep train-tokenizer data/clean --vocab-size 32000 --out data/tokenizer
      prep tokenize data/clean --tokenizer data/tokenizer --out data/tokens
      prep mix web=data/tokens code=data/code --temperature 3.3 --out data/mixture.json
      prep lineage data/mixture.json
    """


def main() -> NoReturn:
    """Entry point of `prep`."""
    run_command(prep, "prep", "Stopped. Finished tasks are kept: run the same command again to go on.")


def run_command(command: click.Command, name: str, when_stopped: str) -> NoReturn:
    """Run a click command as this process, and exit with one of our exit codes; `when_stopped` is said after Ctrl-C."""
    logging.basicConfig(format="%(levelname)s: %(message)s", stream=sys.stderr)
    signal.signal(signal.SIGTERM, _raise_interrupt)
    sys.exit(_exit_code(command, name, when_stopped))


def _raise_interrupt(number: int, frame: Any) -> NoReturn:
    raise KeyboardInterrupt


def _exit_code(command: click.Command, name: str, when_stopped: str) -> int:
    try:
        result = command.main(prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo(when_stopped, err=True)
        return ExitCode.STOPPED
    except TokenmillError as error:
        click.echo(f"Error: {error}", err=True)
        return error.exit_code
    except SystemError as error:
        # What comes of Ctrl-C as compiled code is being called.
        if not isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
            raise
        click.echo(when_stopped, err=True)
        return ExitCode.STOPPED
    except OSError as error:
        return _after_os_error(error)
    return result if isinstance(result, int) else ExitCode.DONE


def _after_os_error(error: OSError) -> int:
    if error.errno == errno.EPIPE:
        # The reader of our output has gone, as `head` does; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    where = f": {error.filename}" if error.filename else ""
    click.echo(f"Error: {error.strerror or error}{where}", err=True)
    return ExitCode.FAILED
