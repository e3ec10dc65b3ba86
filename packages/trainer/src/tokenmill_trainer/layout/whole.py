"""A model that lies whole on its rank, because there is nobody to share it with: FSDP2 would only copy it.

    weights fp32 ─ cast, at a step's first forward ─▶ copy ─ forward, backward ─▶ a gradient
        ▲                                                                             │ as soon as it is there
        └──── optimizer ◀──── gradients fp32, summed over micro-batches and ranks ◀───┘

In fp32 the weights themselves are used, and there is no copy. Otherwise the copy stands in their place in the modules
from the first forward of a step to its last backward. The numbers are those of FSDP2 with the same precision.
"""

from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

_ATTRIBUTE = "_tokenmill_whole"


class Whole:
    """What a whole model has beside its weights: the copy to compute with, and the sums of gradients."""

    def __init__(self, model: nn.Module, dtype: torch.dtype, replicas: dist.ProcessGroup | None) -> None:
        """Stay with `model`, which computes in `dtype`; `replicas` are the ranks that hold it too, if any do."""
        self.replicas = replicas
        self._dtype = dtype
        self._places = _places(model)
        self._copies: dict[nn.Parameter, nn.Parameter] = {}
        self._is_last = False
        self._sums: list[dist.Work] = []
        setattr(model, _ATTRIBUTE, self)
        if dtype == torch.float32:
            for weight in self._places:
                weight.register_post_accumulate_grad_hook(self._sum_over_replicas)  # type: ignore[no-untyped-call]
        else:
            model.register_forward_pre_hook(lambda *_: self._use_copy())

    def prepare_backward(self, is_last: bool) -> None:
        """The backward that comes is, or is not, the last of its step: then sums travel, and the copy is let go."""
        self._is_last = is_last

    def finish_backward(self) -> None:
        """After the backward; after the last one all sums are there, and the weights are back in their place."""
        for work in self._sums:
            work.wait()
        self._sums.clear()
        if self._is_last:
            self.release()

    def release(self) -> None:
        """Put the weights back in the place of their copy."""
        for weight, copy in self._copies.items():
            self._put(weight, weight)
            _free(copy)
        self._copies.clear()

    def _use_copy(self) -> None:
        if self._copies:
            return
        for weight in self._places:
            copy = nn.Parameter(weight.detach().to(self._dtype), requires_grad=weight.requires_grad)
            if weight.requires_grad:
                copy.register_post_accumulate_grad_hook(partial(self._take_gradient, weight))  # type: ignore[no-untyped-call]
            self._put(weight, copy)
            self._copies[weight] = copy

    def _put(self, weight: nn.Parameter, tensor: nn.Parameter) -> None:
        for module, name in self._places[weight]:
            module._parameters[name] = tensor

    def _take_gradient(self, weight: nn.Parameter, copy: Tensor) -> None:
        gradient, copy.grad = copy.grad, None
        assert gradient is not None
        if weight.grad is None:
            weight.grad = gradient.to(weight.dtype)
        else:
            weight.grad += gradient
        if self._is_last:
            _free(copy)
        self._sum_over_replicas(weight)

    def _sum_over_replicas(self, weight: Tensor) -> None:
        if self._is_last and self.replicas is not None:
            assert weight.grad is not None
            work = dist.all_reduce(weight.grad, group=self.replicas, async_op=True)
            assert work is not None
            self._sums.append(work)


def whole(model: nn.Module) -> Whole:
    """What `model`, which lies whole on its rank, has beside its weights."""
    found = getattr(model, _ATTRIBUTE)
    assert isinstance(found, Whole)
    return found


def _free(tensor: Tensor) -> None:
    """Give the memory back at once: the graph of a backward that is done may live as long as its loss does."""
    tensor.untyped_storage().resize_(0)


def _places(model: nn.Module) -> dict[nn.Parameter, list[tuple[nn.Module, str]]]:
    """Every weight, with the modules and names under which it stands: several where weights are tied."""
    places: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False, remove_duplicate=False):
            places.setdefault(weight, []).append((module, name))
    return places
