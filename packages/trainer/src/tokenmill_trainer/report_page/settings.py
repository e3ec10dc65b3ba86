"""Settings of runs side by side."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

PLACES = frozenset({"data.mixture"})
"""Where something lies, which is not how a run was trained."""


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of everything in nested settings."""
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def side_by_side(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Any]]]:
    """(name, the value in each of `runs`) of all settings in order; None where a run does not have it."""
    names = dict.fromkeys(name for settings in runs for name in settings)
    return [(name, [settings.get(name) for settings in runs]) for name in names]


def differing(rows: Sequence[tuple[str, list[Any]]]) -> list[tuple[str, list[Any]]]:
    """Of `side_by_side`, what is not the same in all runs."""
    return [(name, values) for name, values in rows if name not in PLACES and any(v != values[0] for v in values)]
