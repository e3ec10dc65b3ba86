"""The `pretrain` command."""

from tokenmill_trainer.cli.root import main

__all__ = ["main"]
