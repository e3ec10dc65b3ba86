"""Errors a person can act on, and the exit code each one ends a command with.

Every message says what is wrong, the offending value, and the remedy.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of `prep` and `pretrain`."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    VERIFICATION = 3
    STOPPED = 75
    """Stopped by a signal after saving: run the same command again to go on."""
    HUNG = 76
    """Training got no further and ended itself, with the stacks on stderr."""


class TokenmillError(Exception):
    """Base of all errors shown to a person as one message, without a traceback."""

    exit_code: ExitCode = ExitCode.FAILED


class InputError(TokenmillError, ValueError):
    """The data given cannot be used: names the file, line or field, the value, and the remedy."""


class ConfigError(TokenmillError, ValueError):
    """A setting is unknown or out of range: names its path in the config and the remedy."""

    exit_code = ExitCode.USAGE


class ManifestError(TokenmillError, ValueError):
    """A manifest is missing, unreadable, or not of the kind that was asked for."""


class VerificationError(TokenmillError, ValueError):
    """What is on disk is not what its manifest says."""

    exit_code = ExitCode.VERIFICATION


class StageError(TokenmillError, RuntimeError):
    """A task of a stage failed or its worker was killed: nothing was published."""
