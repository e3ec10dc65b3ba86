"""Which checkpoints stay and which go, once a newer one is complete and was read back.

The newest `keep_last` stay, and those of every `keep_every` steps for ever. Nothing is removed at any other moment, so
what a run was resumed from is there until a newer one can take its place.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from tokenmill_core.manifest import Frozen
from tokenmill_trainer.checkpoints.store import discard, list_checkpoints, remove_unfinished, step_of

Future = Literal["stays", "goes", "for ever"]


class CheckpointConfig(Frozen):
    """How often the state is saved and how much of the past is kept."""

    interval: int = Field(default=500, gt=0)
    """Steps between two checkpoints; the last step has one too."""
    asynchronous: bool = True
    """Whether training goes on while a checkpoint is written, from a copy of the state in host memory."""
    keep_last: int = Field(default=2, gt=0)
    """Newest checkpoints that are kept; older ones are removed once a newer one is complete."""
    keep_every: int | None = Field(default=None, gt=0)
    """Steps; checkpoints of their multiples stay for ever. None: no such."""

    @model_validator(mode="after")
    def _saved_at_all(self) -> "CheckpointConfig":
        if self.keep_every is not None and self.keep_every % self.interval:
            multiple = -(-self.keep_every // self.interval) * self.interval
            raise ValueError(
                f"keep_every: {self.keep_every} is no multiple of checkpoint.interval {self.interval}, so not all of "
                f"these steps are saved; set it to {multiple}"
            )
        return self


def removable(paths: Sequence[Path], config: CheckpointConfig, newest_step: int) -> list[Path]:
    """What goes, of `paths` newest first, once the one of `newest_step` is complete and among them.

    Those of later steps belong to a past that the run has left: it was resumed from before them, because they were
    broken, or rolled back. They go whatever their step.
    """
    stale = [path for path in paths if step_of(path) > newest_step]
    current = [path for path in paths if step_of(path) <= newest_step]
    return stale + [path for path in current[config.keep_last :] if not _for_ever(path, config)]


def future(paths: Sequence[Path], config: CheckpointConfig) -> list[Future]:
    """Of each of `paths`, newest first, whether it stays or goes when the next one is complete, or stays for ever."""
    leaving = paths[config.keep_last - 1 :]
    return ["for ever" if _for_ever(path, config) else "goes" if path in leaving else "stays" for path in paths]


def _for_ever(path: Path, config: CheckpointConfig) -> bool:
    return config.keep_every is not None and step_of(path) % config.keep_every == 0


def prune(folder: Path, config: CheckpointConfig, newest_step: int) -> None:
    """Remove what may go now that the checkpoint of `newest_step` is complete, and what earlier removals left over."""
    for path in removable(list_checkpoints(folder), config, newest_step):
        discard(path)
    remove_unfinished(folder)
