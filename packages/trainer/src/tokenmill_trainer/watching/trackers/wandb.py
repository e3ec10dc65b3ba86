"""Weights & Biases, with what its own environment says: WANDB_API_KEY, WANDB_MODE, WANDB_ENTITY, WANDB_BASE_URL."""

from collections.abc import Mapping

import wandb

from tokenmill_trainer.watching.trackers.tracker import SampledText, TrackedRun


class WeightsAndBiases:
    """A run of Weights & Biases; offline it lies in RUN/wandb until `wandb sync`."""

    replaces_steps = False

    def __init__(self, run: TrackedRun) -> None:
        self._run = wandb.init(
            project=run.project,
            name=run.name,
            id=run.id,
            resume=None if run.id is None else "allow",
            config=dict(run.settings),
            dir=str(run.folder),
            # Its wrapper of standard output breaks progress bars, and its log of the terminal may hold anything.
            settings=wandb.Settings(console="off", silent=True),
        )
        self.id = str(self._run.id)
        self.place = self._run.url or str(run.folder / "wandb")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One row of its history."""
        self._run.log(dict(values), step=step)

    def show(self, step: int, samples: list[SampledText]) -> None:
        """A table of prompts and texts."""
        table = wandb.Table(columns=["prompt", "text"], data=[list(sample) for sample in samples])
        self._run.log({"samples": table}, step=step)

    def finish(self, digest: str | None) -> None:
        """The digest stands in the run's summary."""
        if digest is not None:
            self._run.summary["digest"] = digest
        self._run.finish()
