"""What a DeepSpeed config may leave to the run ("auto"), and needs to know all the same."""

from dataclasses import dataclass
from typing import Any

from tokenmill_trainer.config import TrainingConfig
from tokenmill_trainer.optim import OptimizerConfig


@dataclass(frozen=True)
class RunValues:
    """Settings as they stand without the config."""

    world_size: int = 1
    micro_batch_size: int = TrainingConfig().micro_batch_size
    lr: float = OptimizerConfig().lr
    """The peak rate."""

    @classmethod
    def of(cls, values: dict[str, Any], world_size: int) -> "RunValues":
        """Those among `values`, by section. One that is no number above 0 is for the run's validation to refuse."""
        micro, lr = _number(values, "training", "micro_batch_size"), _number(values, "optimizer", "lr")
        return cls(world_size, micro if isinstance(micro, int) else cls.micro_batch_size, cls.lr if lr is None else lr)


def _number(values: dict[str, Any], section: str, name: str) -> int | float | None:
    settings = values.get(section)
    value = settings.get(name) if isinstance(settings, dict) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None
