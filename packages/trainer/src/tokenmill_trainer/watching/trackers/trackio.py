"""trackio: on this machine, or where TRACKIO_SPACE_ID or TRACKIO_SERVER_URL say."""

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout

import trackio

from tokenmill_trainer.watching.trackers.tracker import SampledText, TrackedRun


class Trackio:
    """A run of trackio, which knows it by its name."""

    replaces_steps = False

    def __init__(self, run: TrackedRun) -> None:
        with redirect_stdout(sys.stderr):
            self._run = trackio.init(
                project=run.project,
                name=run.id or run.name,
                resume="never" if run.id is None else "allow",
                config=dict(run.settings),
                embed=False,
            )
        trackio.context_vars.current_run.set(None)  # or it would be finished a second time, by trackio itself
        self.id = str(self._run.name)
        self.place = str(self._run.url or trackio.TRACKIO_DIR)
        self._last = 0

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One row."""
        self._run.log(dict(values), step=step)
        self._last = step

    def show(self, step: int, samples: list[SampledText]) -> None:
        """A table of prompts and texts."""
        table = trackio.Table(columns=["prompt", "text"], data=[list(sample) for sample in samples])
        self._run.log({"samples": table}, step=step)

    def finish(self, digest: str | None) -> None:
        """The digest is the last thing logged."""
        if digest is not None:
            self._run.log({"digest": digest}, step=self._last)
        with redirect_stdout(sys.stderr):
            self._run.finish()
