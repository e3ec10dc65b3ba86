"""An average of the weights over the course of training, which often predicts better than the last of them.

After each step, average += (1 − decay) · (weights − average), in fp32, on each rank for the part it holds.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from pydantic import ConfigDict, Field
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from tokenmill_core.manifest import Frozen


class EmaConfig(Frozen):
    """Whether an exponential moving average of the weights is kept."""

    model_config = ConfigDict(allow_inf_nan=False)

    decay: float | None = Field(default=None, gt=0, lt=1)
    """Share of the average that a step leaves: 0.999 averages over about the last 1,000 steps; none: no average."""


class WeightAverage:
    """The average of the parameters of `model`, sharded as they are. It begins as a copy of them."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._model = model
        self.tensors: dict[str, Tensor] = {}
        """By parameter name, as the parameters lie on this rank."""
        self.restart()

    def restart(self) -> None:
        """Begin again from the weights as they are now."""
        self.tensors = {name: parameter.detach().clone() for name, parameter in self._model.named_parameters()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after a step."""
        for name, parameter in self._model.named_parameters():
            _local(self.tensors[name]).lerp_(_local(parameter), 1 - self.decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the averaged weights for the length of a `with` block, and afterwards its own, bit for bit.

        Whole parameters that were gathered inside must be let go before it ends (`release_parameters`).
        """
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in self._model.named_parameters():
            average, weight = _local(self.tensors[name]), _local(parameter)
            held = weight.clone()
            weight.copy_(average)
            average.copy_(held)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
