"""Batches to checkpoints to a model: the only package that knows torch."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tokenmill_trainer.build import initialize
    from tokenmill_trainer.config import RunConfig
    from tokenmill_trainer.engine import Engine

__all__ = ["Engine", "RunConfig", "initialize"]


def __getattr__(name: str) -> Any:
    """Load the engine when it is first asked for, so that importing the package does not import torch."""
    if name == "RunConfig":
        from tokenmill_trainer.config import RunConfig

        return RunConfig
    if name == "Engine":
        from tokenmill_trainer.engine import Engine

        return Engine
    if name == "initialize":
        from tokenmill_trainer.build import initialize

        return initialize
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
