"""Saving and restoring the whole state of a run: the front of this room.

    engine ─ capture ─▶ Snapshot ─ writing ─▶ .step-N.tmp/ ─ rename ─▶ step-N/ ─ store: verified ─ restoring ─▶ engine

`save` does it at once; a run uses `saver.Saver`, which writes while training goes on.
"""

from pathlib import Path

from tokenmill_trainer.checkpoints.capture import capture, tensors
from tokenmill_trainer.checkpoints.restoring import read_tensors, restore
from tokenmill_trainer.checkpoints.writing import CheckpointError, write
from tokenmill_trainer.engine import Engine

__all__ = ["CheckpointError", "read_tensors", "restore", "save", "tensors"]


def save(engine: Engine, folder: Path) -> Path:
    """Save the engine's state as `folder/step-NNNNNNNN` and remove what retention lets go. Collective.

    Errors: those of `capture` and `write`, on every rank.
    """
    return write(capture(engine), folder, engine.world)
