"""What a forward may change besides the loss: buffers, such as the running means of batch norm.

    a step's first forward ─ hold ─▶ copies ─ the step is left out ─ put_back ─▶ the buffers as they were

Only persistent buffers count: they are state, which checkpoints hold. The others are made anew from settings.
"""

import torch
from torch import Tensor, nn


class HeldBuffers:
    """The persistent buffers of a model as they were when a step began."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._held: dict[str, Tensor] = {}

    def hold(self) -> None:
        """Copy them."""
        self._held = {name: buffer.clone() for name, buffer in persistent_buffers(self._model).items()}

    @torch.no_grad()
    def put_back(self) -> None:
        """Make them what they were."""
        buffers = persistent_buffers(self._model)
        for name in self._held.keys() & buffers.keys():
            buffers[name].copy_(self._held[name])


def persistent_buffers(model: nn.Module) -> dict[str, Tensor]:
    """By name those that checkpoints hold."""
    return {
        f"{path}.{name}" if path else name: buffer.detach()
        for path, module in model.named_modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name not in module._non_persistent_buffers_set
    }
