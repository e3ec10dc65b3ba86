"""Which settings a run may change when it goes on, and which make it another run."""

from collections.abc import Collection
from typing import Any, Literal

from tokenmill_core.config import validate_config
from tokenmill_core.errors import ConfigError, VerificationError
from tokenmill_core.manifest import CheckpointManifest, SourceUse
from tokenmill_core.mixture_manifest import MixtureManifest
from tokenmill_shards.open_samples import SamplesManifest
from tokenmill_shards.reading.samples import SampleReader
from tokenmill_trainer.config import RunConfig, recorded

Change = Literal["schedule", "optimizer", "precision"]
CHANGES: dict[Change, tuple[str, ...]] = {
    "schedule": ("schedule.", "optimizer.lr", "training.steps", "training.batch_ramp"),
    "optimizer": ("optimizer.", "training.max_grad_norm", "loss.z_loss", "ema."),
    "precision": ("training.precision", "loss_scale.", "fp8."),
}
"""Settings that change the course of a run: refused, unless named by `--allow-change`."""

FIXED = ("model.", "data.sequence_length", "data.documents", "training.seed", "optimizer.kind")
"""Settings without which weights, order or start would not be those of the checkpoint. The mixture is known by its
digest, not its path. What is named nowhere here, such as batch sizes and the ZeRO stage, may change freely: the order
of the data goes on from the samples consumed."""

CONTINUE_OPTIONS = "--continue OLD.json --from TOKENS"
"""Of `prep mix`."""


def check_resumable(
    config: RunConfig, mixture: SamplesManifest | None, checkpoint: CheckpointManifest, allowed: Collection[str]
) -> None:
    """`config` and `mixture` can go on from `checkpoint`, or `ConfigError` naming all that differs and what to do.

    A mixture that continues the one trained on may take its place, as long as nothing was drawn past where they part.
    """
    # Read again, so that a setting that is newer than the checkpoint has its default there.
    recorded_before = recorded(validate_config(RunConfig, checkpoint.config, checkpoint.name))
    before, now = _flat(recorded_before), _flat(recorded(config))
    before.pop("model.preset", None), now.pop("model.preset", None)
    problems = []
    for path in sorted(before.keys() | now.keys()):
        if before.get(path) != now.get(path):
            problem = _problem(path, allowed)
            if problem:
                problems.append(f"{path}: {now.get(path)!r} here, {before.get(path)!r} in the checkpoint; {problem}")
    mixture_problem = _mixture_problem(mixture, checkpoint, config.data.sequence_length)
    if mixture_problem:
        problems.append(f"data.mixture: {mixture_problem}")
    if problems:
        raise ConfigError(f"{checkpoint.name} cannot go on with these settings:\n  " + "\n  ".join(problems))


def check_ledger(reader: SampleReader, checkpoint: CheckpointManifest) -> None:
    """The data at hand gives each source what `checkpoint` has drawn from it, or `VerificationError`."""
    now = {use.name: use for use in reader.use(checkpoint.consumed_samples) if use.tokens}
    before = {use.name: use for use in checkpoint.sources if use.tokens}
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            raise VerificationError(
                f"{checkpoint.name}: {_amount(before.get(name))} of source {name!r} were drawn in its "
                f"{checkpoint.consumed_samples:,} samples, but the data here gives {_amount(now.get(name))}: "
                "restore the mixture it was trained on"
            )


def describe_switch(mixture: SamplesManifest, checkpoint: CheckpointManifest) -> str | None:
    """A line that says so where a run goes on with another mixture than that of `checkpoint`, else none."""
    trained_on = checkpoint.inputs[0].digest if checkpoint.inputs else None
    until_token = _takes_over_at(mixture, trained_on)
    if trained_on == mixture.digest or until_token is None:
        return None
    return (
        f"goes on with mixture {mixture.name} {_short(mixture.digest)} from token {until_token:,}; "
        f"trained on {_short(trained_on)} before"
    )


def _takes_over_at(mixture: SamplesManifest | None, trained_on: str | None) -> int | None:
    """The token from which `mixture` goes on with the one that has the digest `trained_on`; none where it does not."""
    continued = mixture.continues if isinstance(mixture, MixtureManifest) else ()
    return next((former.until_token for former in continued if former.digest == trained_on), None)


def _mixture_problem(mixture: SamplesManifest | None, checkpoint: CheckpointManifest, length: int) -> str | None:
    digest = mixture.digest if mixture else None
    trained_on = checkpoint.inputs[0].digest if checkpoint.inputs else None
    if trained_on == digest:
        return None
    until_token = _takes_over_at(mixture, trained_on)
    if until_token is None:
        return (
            f"digest {_short(digest)} here, {_short(trained_on)} in the checkpoint; give that one, or one that "
            f"goes on with it (prep mix … {CONTINUE_OPTIONS}), or start a new run with another --out"
        )
    first_sample = -(-until_token // length)  # as `tokenmill_shards.Mixture` has it
    if checkpoint.consumed_samples > first_sample:
        return (
            f"it takes over from token {until_token:,}, sample {first_sample:,}, but {checkpoint.consumed_samples:,} "
            f"samples are consumed; mix it again from token {checkpoint.consumed_samples * length} or later"
        )
    return None


def _problem(path: str, allowed: Collection[str]) -> str | None:
    if path.startswith(FIXED):
        return "set it back, or start a new run with another --out"
    for change, prefixes in CHANGES.items():
        if path.startswith(prefixes):
            return None if change in allowed else f"set it back, or say that you mean it: --allow-change {change}"
    return None


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _short(digest: str | None) -> str:
    return f"{digest[:12]}…" if digest else "none"


def _amount(use: SourceUse | None) -> str:
    if use is None:
        return "nothing"
    samples = "" if use.samples is None else f"{use.samples:,} samples, "
    return f"{samples}{use.tokens:,} tokens, {use.epochs:.6g} epochs"
