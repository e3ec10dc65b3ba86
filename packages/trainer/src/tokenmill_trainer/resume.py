"""Which settings a run may change when it goes on, and which make it another run."""

from collections.abc import Collection
from typing import Any, Literal

from tokenmill_core.errors import ConfigError
from tokenmill_core.manifest import CheckpointManifest
from tokenmill_trainer.config import RunConfig, recorded

Change = Literal["schedule", "optimizer", "precision"]
CHANGES: dict[Change, tuple[str, ...]] = {
    "schedule": ("schedule.", "optimizer.lr", "training.steps"),
    "optimizer": ("optimizer.betas", "optimizer.eps", "optimizer.weight_decay", "training.max_grad_norm"),
    "precision": ("training.precision",),
}
"""Settings that change the course of a run: refused, unless named by `--allow-change`."""

FIXED = ("model.", "data.sequence_length", "training.seed")
"""Settings without which weights, order or start would not be those of the checkpoint. The mixture is known by its
digest, not its path. What is named nowhere here, such as batch sizes and the ZeRO stage, may change freely: the order
of the data goes on from the samples consumed."""


def check_resumable(
    config: RunConfig, mixture_digest: str | None, checkpoint: CheckpointManifest, allowed: Collection[str]
) -> None:
    """`config` can go on from `checkpoint`, or `ConfigError` naming everything that differs and what to do."""
    before, now = _flat(checkpoint.config), _flat(recorded(config))
    before.pop("model.preset", None), now.pop("model.preset", None)
    problems = []
    for path in sorted(before.keys() | now.keys()):
        if before.get(path) != now.get(path):
            problem = _problem(path, allowed)
            if problem:
                problems.append(f"{path}: {now.get(path)!r} here, {before.get(path)!r} in the checkpoint; {problem}")
    trained_on = checkpoint.inputs[0].digest if checkpoint.inputs else None
    if trained_on != mixture_digest:
        problems.append(
            f"data.mixture: digest {_short(mixture_digest)} here, {_short(trained_on)} in the checkpoint; "
            "give the mixture it was trained on, or start a new run with another --out"
        )
    if problems:
        raise ConfigError(f"{checkpoint.name} cannot go on with these settings:\n  " + "\n  ".join(problems))


def _problem(path: str, allowed: Collection[str]) -> str | None:
    for change, prefixes in CHANGES.items():
        if path.startswith(prefixes):
            return None if change in allowed else f"set it back, or say that you mean it: --allow-change {change}"
    return "set it back, or start a new run with another --out" if path.startswith(FIXED) else None


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _short(digest: str | None) -> str:
    return f"{digest[:12]}…" if digest else "none"
