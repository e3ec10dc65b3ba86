"""`tensorboard`, `wandb`, `csv_monitor` and `steps_per_print`: what a run tells of itself."""

import math
from typing import Any

from tokenmill_trainer.deepspeed.section import Section

NEVER = (0, math.inf)
"""Values of `steps_per_print` with which DeepSpeed tells nothing; a line now and then costs nothing here."""


def monitors(root: Section, values: dict[str, Any]) -> None:
    """Put `[trackers]` and `logging.interval` into `values`."""
    if root.peek("steps_per_print") in NEVER:
        root.hint("steps_per_print")
    interval = root.count("steps_per_print")
    if interval is not None:
        values["logging"] = {"interval": interval}
    kinds = []
    tensorboard, wandb, csv = root.section("tensorboard"), root.section("wandb"), root.section("csv_monitor")
    if tensorboard is not None:
        kinds += ["tensorboard"] if tensorboard.flag("enabled") else []
        tensorboard.hint("output_path", "job_name")
        tensorboard.finish()
    if wandb is not None:
        kinds += ["wandb"] if wandb.flag("enabled") else []
        project = wandb.text("project")
        if kinds and project is not None:
            values.setdefault("trackers", {})["project"] = project
        wandb.hint("group", "team")
        wandb.finish()
    if csv is not None:
        csv.hint("enabled", "output_path", "job_name")  # metrics.jsonl has all of it
        csv.finish()
    root.off("comet", "what is: tensorboard, wandb")
    if kinds:
        values.setdefault("trackers", {})["kinds"] = kinds
