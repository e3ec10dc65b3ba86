"""The optimizers: which there are, and how one is made for a model."""

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.distributed as dist
from pydantic import ConfigDict, Field, field_validator, model_validator
from torch import Tensor, nn

from tokenmill_core.manifest import Frozen
from tokenmill_trainer.optim.adafactor import Adafactor
from tokenmill_trainer.optim.groups import HEAD, GroupConfig, embedding_names, parameter_groups
from tokenmill_trainer.optim.muon import Muon
from tokenmill_trainer.optim.start_state import adamw_state

OptimizerKind = Literal["adamw", "muon", "adafactor"]


class OptimizerConfig(Frozen):
    """The optimizer, and its settings for all parameters or for some."""

    model_config = ConfigDict(allow_inf_nan=False)

    kind: OptimizerKind = "adamw"
    """`adamw` (arXiv:1711.05101), `muon` (with adamw for embeddings, head and vectors), or `adafactor`
    (arXiv:1804.04235), which keeps two vectors a matrix in place of two matrices."""
    lr: float = Field(default=3e-4, gt=0)
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay of the first and second moment, a step; adafactor has its own."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the second moment; adafactor has its own."""
    momentum: float = Field(default=0.95, ge=0, lt=1)
    """Decay of muon's momentum, a step."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Decay of matrices, times the rate, a step; vectors such as norm weights do not decay."""
    decay_embeddings: bool = True
    """Whether embeddings, a tied head with them, decay as other matrices do."""
    groups: tuple[GroupConfig, ...] = ()
    """Rules for some of the parameters, as [[optimizer.groups]]."""

    @field_validator("kind", mode="before")
    @classmethod
    def _no_lion(cls, kind: Any) -> Any:
        if kind == "lion":
            raise ValueError("lion is in none of the libraries this is built on; use adamw, muon or adafactor")
        return kind

    @model_validator(mode="after")
    def _betas_in_range(self) -> "OptimizerConfig":
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas: {list(self.betas)} must both be at least 0 and below 1, such as [0.9, 0.95]")
        return self


def build_optimizer(
    model: nn.Module, config: OptimizerConfig, replicas: dist.ProcessGroup | None = None
) -> torch.optim.Optimizer:
    """The optimizer of `config` over the parameters of `model`, sharded or not.

    What it remembers is there from the start, all zeros. Collective where adafactor's parameters are sharded.
    `replicas` are the ranks that hold the same parameters whole, if any do: they share the work of dear updates.

    Errors: `ConfigError` where a rule of `config.groups` matches nothing.
    """
    groups = parameter_groups(
        model,
        config.groups,
        weight_decay=config.weight_decay,
        decay_embeddings=config.decay_embeddings,
        for_muon=_for_muon(model) if config.kind == "muon" else None,
    )
    match config.kind:
        case "muon":
            return Muon(
                groups,
                lr=config.lr,
                momentum=config.momentum,
                betas=config.betas,
                eps=config.eps,
                replicas=replicas,
            )
        case "adafactor":
            return Adafactor(groups, lr=config.lr)
        case "adamw":
            optimizer = torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)
            for group in groups:
                optimizer.state.update({parameter: adamw_state(parameter) for parameter in group["params"]})
            return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Use `lr` from the next step on, in each group times its own factor."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_scale"]


def _for_muon(model: nn.Module) -> Callable[[str, Tensor], bool]:
    """Muon takes matrices, and stacks of them, that neither read nor write tokens."""
    others = embedding_names(model) | {HEAD}
    return lambda name, parameter: parameter.ndim >= 2 and name not in others
