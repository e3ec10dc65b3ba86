"""Settings of the evaluation in the loop."""

from pathlib import Path

from pydantic import Field, model_validator

from tokenmill_core.manifest import Frozen


class HarnessConfig(Frozen):
    """Tasks of lm-evaluation-harness that the model is measured by while it is trained."""

    interval: int = Field(default=0, ge=0)
    """Steps between two times; the last step has one too. 0: none at all."""
    tasks: tuple[str, ...] = ()
    """Tasks, by their names in the harness."""
    tasks_path: str | None = None
    """Folder with task files of your own."""
    limit: int | None = Field(default=None, gt=0)
    """Only so many documents of each task."""
    num_fewshot: int | None = Field(default=None, ge=0)
    """Examples before each question; the task's own number if not said."""
    batch_size: int = Field(default=8, gt=0)
    """Rows read at once."""

    @model_validator(mode="after")
    def _some_tasks(self) -> "HarnessConfig":
        if self.interval and not self.tasks:
            raise ValueError(f"interval: {self.interval}, but there is no task; name some in tasks")
        return self

    @property
    def tasks_folder(self) -> Path | None:
        """That of `tasks_path`."""
        return None if self.tasks_path is None else Path(self.tasks_path)
