"""What a tracker is told of a run, whatever its kind."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class SampledText(NamedTuple):
    """How the model went on from a prompt."""

    prompt: str
    text: str


@dataclass(frozen=True)
class TrackedRun:
    """The run as it begins, or goes on."""

    folder: Path
    project: str
    name: str
    settings: Mapping[str, Any]
    """The resolved settings, and the digest of what is trained on."""
    id: str | None = None
    """The tracker's own name of the run from an earlier start; none: it is new."""


class Tracker(Protocol):
    """One tool that shows a run. Its methods are called from one thread, and may raise whatever its library raises."""

    id: str
    """By which a later start finds the run again."""
    place: str
    """Where a person looks at it."""
    replaces_steps: bool
    """Whether the numbers of a step give way to those it is told again; otherwise it is told each step once."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """The numbers of a step."""
        ...

    def show(self, step: int, samples: list[SampledText]) -> None:
        """Texts that the model wrote after a step."""
        ...

    def finish(self, digest: str | None) -> None:
        """Send what is left. `digest` is that of the run's manifest; none: the run has not come to its end."""
        ...


def numbers(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Every number of a row of `metrics.jsonl`, nested ones as `loss_by_source/web`, without the step itself."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and prefix + name != "step":
            found[prefix + name] = float(value)
    return found


def as_markdown(samples: list[SampledText]) -> str:
    """The samples as Markdown that shows every character as it is, whatever the model wrote."""
    return "\n\n".join(f"{block(sample.prompt)}\n\ngoes on\n\n{block(sample.text)}" for sample in samples)


def settings_text(settings: Mapping[str, Any]) -> str:
    """The settings as indented JSON."""
    return json.dumps(settings, indent=2)


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """The settings one by one, as `optimizer.lr`."""
    flat: dict[str, str] = {}
    for name, value in settings.items():
        path = prefix + name
        flat |= flat_settings(value, f"{path}.") if isinstance(value, Mapping) else {path: str(value)}
    return flat


def block(text: str) -> str:
    """`text` as a block of Markdown that is shown as it stands."""
    return "\n".join("    " + line for line in text.splitlines() or [""])
