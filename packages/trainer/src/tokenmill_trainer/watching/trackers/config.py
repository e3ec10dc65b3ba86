"""Which trackers a run is shown in. Addresses and keys stay in each tool's own environment variables."""

from importlib.util import find_spec
from typing import Literal

from pydantic import Field, field_validator

from tokenmill_core.errors import ConfigError
from tokenmill_core.manifest import Frozen

Kind = Literal["tensorboard", "wandb", "mlflow", "trackio"]


class TrackersConfig(Frozen):
    """Where a run is shown besides its own folder. Keys and servers are never settings: see docs/watching.md."""

    kinds: tuple[Kind, ...] = ()
    """Any of tensorboard, wandb, mlflow, trackio; each must be installed."""
    project: str = Field(default="tokenmill", min_length=1)
    """Project (Weights & Biases, trackio) or experiment (MLflow) that the run stands under."""
    name: str | None = Field(default=None, min_length=1)
    """Name of the run there; none: that of its folder."""

    @field_validator("kinds")
    @classmethod
    def _each_once(cls, kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
        if len(set(kinds)) < len(kinds):
            raise ValueError("the same tracker stands there twice; name each once")
        return kinds


def check_installed(config: TrackersConfig) -> None:
    """Every tracker that is asked for can be imported, or `ConfigError` with the way to get it."""
    missing = [kind for kind in config.kinds if find_spec(kind) is None]
    if missing:
        raise ConfigError(
            f"trackers.kinds: {', '.join(missing)} cannot be imported: "
            f'pip install "tokenmill-trainer[{",".join(missing)}]", or leave it out'
        )
