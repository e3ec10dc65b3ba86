"""Which documents a step of a run has seen."""

from typing import Any

from tokenmill_core.errors import InputError, VerificationError
from tokenmill_core.manifest import MixtureManifest
from tokenmill_core.manifest_io import load_manifest
from tokenmill_shards.reading.windows import MixtureReader
from tokenmill_trainer.run_folder import RunFolder, locate_mixture
from tokenmill_trainer.step_log import read_steps


def samples_of_step(run: RunFolder, step: int) -> range:
    """Global sample indices that step `step` (1 is the first) was trained on, or `InputError` if it was not reached."""
    consumed = {row["step"]: row["consumed_samples"] for row in read_steps(run.metrics_file, step)}
    if step not in consumed:
        raise InputError(f"--step {step}: not in {run.metrics_file}; the run has steps 1 to {max(consumed, default=0)}")
    if step > 1 and step - 1 not in consumed:
        raise InputError(
            f"--step {step}: step {step - 1} is missing in {run.metrics_file}, so its samples are not known"
        )
    return range(consumed[step - 1] if step > 1 else 0, consumed[step])


def trace_step(run: RunFolder, step: int, mixture: str | None = None) -> list[dict[str, Any]]:
    """The documents in each sample of step `step`, as `MixtureReader.trace` gives them, with their `sample`.

    `mixture` says where the mixture lies now; without it, it is looked for where it was. Errors: `VerificationError`
    where that is not the mixture of the run.
    """
    samples = samples_of_step(run, step)
    config = run.read_config()
    path = mixture or locate_mixture(config, run.checkpoints)
    trained_on, found = (load_manifest(str(p), MixtureManifest).manifest for p in (run.mixture_file, path))
    if found.digest != trained_on.digest:
        raise VerificationError(
            f"{path}: digest {found.digest[:12]}…, but the run was trained on {trained_on.digest[:12]}…; "
            "say where that one lies with --mixture"
        )
    reader = MixtureReader.open(path, config.data.sequence_length)
    return [{"sample": sample, **document} for sample in samples for document in reader.trace(sample)]
