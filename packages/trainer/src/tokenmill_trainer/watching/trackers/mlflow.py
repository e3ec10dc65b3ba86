"""MLflow, at its own MLFLOW_TRACKING_URI (with MLFLOW_TRACKING_USERNAME, …_PASSWORD or …_TOKEN)."""

import re
import time
from collections.abc import Mapping

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from tokenmill_trainer.watching.trackers.tracker import (
    SampledText,
    TrackedRun,
    as_markdown,
    flat_settings,
    settings_text,
)

MAX_PARAMS = 100
"""Of one request."""
MAX_PARAM_LENGTH = 500
"""Of a parameter's value, in every version of the server; the artifact settings.json has all of it."""


class MLflow:
    """A run of MLflow: metrics, settings as parameters and as settings.json, samples as artifacts."""

    replaces_steps = False

    def __init__(self, run: TrackedRun) -> None:
        self._client = MlflowClient()
        self.id = run.id or self._create(run)
        self._client.update_run(self.id, status="RUNNING")
        self._client.log_text(self.id, settings_text(run.settings), "settings.json")
        self.place = f"{self._client.tracking_uri}, run {self.id}".rpartition("@")[
            2
        ]  # without a password in the address

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One metric a number."""
        now = int(time.time() * 1000)
        self._client.log_batch(self.id, [Metric(_allowed(name), value, now, step) for name, value in values.items()])

    def show(self, step: int, samples: list[SampledText]) -> None:
        """An artifact of all samples."""
        self._client.log_text(self.id, as_markdown(samples), f"samples/step-{step:08d}.md")

    def finish(self, digest: str | None) -> None:
        """The digest is a tag. A run that was stopped half-way says so."""
        if digest is not None:
            self._client.set_tag(self.id, "digest", digest)
        self._client.set_terminated(self.id, "KILLED" if digest is None else "FINISHED")

    def _create(self, run: TrackedRun) -> str:
        experiment = self._client.get_experiment_by_name(run.project)
        number = experiment.experiment_id if experiment else self._client.create_experiment(run.project)
        created = str(self._client.create_run(number, run_name=run.name).info.run_id)
        params = [Param(_allowed(k), v[:MAX_PARAM_LENGTH]) for k, v in flat_settings(run.settings).items()]
        for first in range(0, len(params), MAX_PARAMS):
            self._client.log_batch(created, params=params[first : first + MAX_PARAMS])
        return created


def _allowed(name: str) -> str:
    """MLflow's names know letters, digits and a few signs."""
    return re.sub(r"[^\w./ :-]", "_", name)
