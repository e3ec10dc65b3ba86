"""INPUT arguments that name a source: `NAME=PATH[:WEIGHT]`."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from tokenmill_core.errors import ConfigError


@dataclass(frozen=True)
class NamedSource:
    """One `NAME=PATH[:WEIGHT]`."""

    name: str
    path: str
    weight: Decimal | None


def parse_source(argument: str) -> NamedSource:
    """`NAME=PATH[:WEIGHT]`. What stands behind the last colon is a weight unless it holds a slash.

    Errors: `ConfigError` where it is none, or the weight is no number of 0 or more.
    """
    name, equals, rest = argument.partition("=")
    if not equals or not name or not rest:
        raise ConfigError(f"source {argument!r}: expected NAME=PATH or NAME=PATH:WEIGHT")
    path, colon, weight = rest.rpartition(":")
    if not colon or "/" in weight:
        return NamedSource(name=name, path=rest, weight=None)
    return NamedSource(name=name, path=path, weight=_parse_weight(weight, name))


def is_named(argument: str) -> bool:
    """Whether an INPUT that may also be a bare path or URL names its source."""
    return re.match(r"[^=/:?*\[\]]+=", argument) is not None and not os.path.exists(argument)


def refuse_repeated_names(sources: Sequence[NamedSource]) -> None:
    """Raise `ConfigError` where two sources have one name."""
    names = [source.name for source in sources]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"source {twice[0]!r} is named twice: give each a name of its own")


def refuse_some_weights(sources: Sequence[NamedSource]) -> None:
    """Raise `ConfigError` where some sources have a weight and others none."""
    without = [source.name for source in sources if source.weight is None]
    if without and len(without) < len(sources):
        raise ConfigError(f"source {without[0]!r} has no weight, but others have: give all sources a weight, or none")


def _parse_weight(text: str, name: str) -> Decimal:
    try:
        weight = Decimal(text)
    except ArithmeticError:
        weight = Decimal("nan")
    if not weight.is_finite() or weight < 0:
        raise ConfigError(f"source {name!r}: weight {text!r} is not a number of 0 or more")
    return weight
