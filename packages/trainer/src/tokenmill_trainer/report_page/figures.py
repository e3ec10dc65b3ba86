"""The figures that a run is judged by, as the summary table and `--json` give them."""

from typing import Any

from tokenmill_trainer.report_page.run_record import RunRecord


def figures(run: RunRecord) -> dict[str, Any]:
    """One object a run; what is not known is None. Losses in nats a token."""
    course, settings = run.course, run.settings
    val_loss, val_step = course.last_validation or (None, None)
    best_val_loss, best_val_step = course.best or (None, None)
    return {
        "run": run.label,
        "path": str(run.path),
        "finished": run.manifest is not None,
        "digest": run.manifest.digest if run.manifest else None,
        "steps": course.step,
        "total_steps": run.total_steps,
        "consumed_tokens": course.tokens,
        "loss": course.loss,
        "val_loss": val_loss,
        "val_step": val_step,
        "best_val_loss": best_val_loss,
        "best_val_step": best_val_step,
        "tokens_per_second": course.tokens_per_second,
        "parameters": run.parameters,
        "world_size": course.world_size,
        "zero_stage": settings.get("training.zero_stage"),
        "precision": settings.get("training.precision"),
        "skipped_steps": course.num_skipped,
        "checkpoints": [record.name for record in run.checkpoints],
    }
