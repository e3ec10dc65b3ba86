"""What arguments of `pretrain` must be, whichever command they are given to."""

from typing import Any

import click

from tokenmill_core.errors import ConfigError


class Place(click.Path):
    """A path or an address. An empty one is wrong usage: a variable of the shell that is not set makes it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """`value` as `click.Path` has it."""
        if value == "":
            self.fail("it is empty; give a path, or leave the option out", param, ctx)
        return super().convert(value, param, ctx)


def check_text(option: str, text: str) -> None:
    """`text` can be encoded, or `ConfigError`: bytes of an argument that are not UTF-8 reach Python as half a pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError(f"{option} {text!r}: is not UTF-8; give it in that encoding") from error
