"""Back to the newest good checkpoint, and on from behind the batches that led astray.

    samples   ... c ────────────────── bad batch ── skip_after batches ──┐
                  checkpoint of step r                                   step r + 1 begins here

PaLM (arXiv:2204.02311, section 5.1) went back some hundred steps before a spike and left out 200 to 500 batches; it did
not come again, and the same batches did no harm from another state of the weights.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenmill_core.manifest import SkippedSamples
from tokenmill_trainer.batches.open_data import check_enough
from tokenmill_trainer.checkpoints import checkpoint, store
from tokenmill_trainer.engine import Engine
from tokenmill_trainer.guard.anomaly import Anomaly


def roll_back(engine: Engine, checkpoints: Path, anomaly: Anomaly, say: Callable[[str], None]) -> dict[str, Any] | None:
    """Put `engine` there; what was done, as an event. None, and nothing done, without a checkpoint. Collective.

    Errors: `VerificationError` where no checkpoint can be trusted; `InputError` where too few samples are left.
    """
    found = engine.world.on_main(lambda: store.newest_verified(checkpoints, say))
    if found is None:
        say(f"step {anomaly.step}: there is no checkpoint to go back to yet, so the step is only left out")
        return None
    acted = engine.judge.acted
    checkpoint.restore(engine, found)
    engine.judge.acted = acted  # what was undone still counts, or a run might go back for ever
    restored = engine.progress
    stop = engine.config.batch_plan.after(anomaly.samples.stop, engine.config.guard.skip_after)
    left_out = SkippedSamples(first=restored.consumed_samples, stop=stop, step=None, reason=anomaly.kind.value)
    engine.move_to(replace(restored, consumed_samples=stop, skipped=(*restored.skipped, left_out)))
    if engine.reader is not None:
        check_enough(engine.reader, stop, engine.samples_left)
    say(f"rolled back to {found.manifest.name}; goes on from sample {stop:,}")
    return {
        "kind": "rollback",
        "step": anomaly.step,
        "restored": found.manifest.name,
        "first_sample": left_out.first,
        "last_sample": left_out.stop - 1,
    }
