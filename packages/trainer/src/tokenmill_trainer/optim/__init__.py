"""How weights are updated: optimizers, which parameters they treat alike, and the rate of each step."""

from tokenmill_trainer.optim.groups import GroupConfig
from tokenmill_trainer.optim.optimizers import OptimizerConfig, build_optimizer, set_learning_rate
from tokenmill_trainer.optim.schedules import ScheduleConfig, learning_rate

__all__ = [
    "GroupConfig",
    "OptimizerConfig",
    "ScheduleConfig",
    "build_optimizer",
    "learning_rate",
    "set_learning_rate",
]
