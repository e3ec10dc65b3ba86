"""Starting the trackers of a run, or going on with what they have of it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenmill_core.errors import ConfigError
from tokenmill_trainer.watching.trackers.config import Kind, TrackersConfig
from tokenmill_trainer.watching.trackers.sending import Sender, Trackers, read_place
from tokenmill_trainer.watching.trackers.tracker import TrackedRun, Tracker

CLASSES: dict[Kind, str] = {
    "tensorboard": "TensorBoard",
    "wandb": "WeightsAndBiases",
    "mlflow": "MLflow",
    "trackio": "Trackio",
}


@contextmanager
def open_trackers(
    config: TrackersConfig, folder: Path, settings: Mapping[str, Any], say: Callable[[str], None]
) -> Iterator[Trackers]:
    """The trackers of the run in `folder`, closed when the `with` block ends, whatever ends it.

    Errors: `ConfigError` where one cannot be started. One that worked in an earlier start of the run is done without:
    a run that goes on by itself at night must not wait for a server.
    """
    senders: list[Sender] = []
    trackers = Trackers(senders)
    try:
        for kind in config.kinds:
            senders += _start(kind, config, folder, settings, say)
        yield trackers
    finally:
        trackers.close()


def _start(
    kind: Kind, config: TrackersConfig, folder: Path, settings: Mapping[str, Any], say: Callable[[str], None]
) -> list[Sender]:
    """One, or none where the tracker has to be done without."""
    path = folder / "trackers" / f"{kind}.json"
    former = read_place(path)
    name = config.name or folder.resolve().name
    run = TrackedRun(folder, config.project, name, settings, former.id if former else None)
    try:
        tracker: Tracker = getattr(import_module(f"tokenmill_trainer.watching.trackers.{kind}"), CLASSES[kind])(run)
    except Exception as error:  # whatever a foreign library raises
        if former is None:
            raise ConfigError(
                f"trackers.kinds: {kind} could not be started: {error}; see to its login and address in its "
                "environment variables and go on with --resume, or leave it out"
            ) from error
        say(f"{kind}: could not be started again: {error}; this start of the run goes on without it")
        return []
    say(f"{kind}: {tracker.place}")
    return [Sender(kind, tracker, path, say)]
