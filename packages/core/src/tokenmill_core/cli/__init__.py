"""The `prep` command: its subcommands come from whichever packages are installed."""

from tokenmill_core.cli.root import main

__all__ = ["main"]
