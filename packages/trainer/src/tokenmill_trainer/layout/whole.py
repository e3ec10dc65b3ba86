"""A model that lies whole on its rank, because there is nobody to share it with: FSDP2 would only copy it.

    weights fp32 ─ cast, at a step's first forward ─▶ copy ─ forward, backward ─▶ a gradient
        ▲                                                                             │ as soon as its turn comes
        └──── optimizer ◀──── gradients fp32, summed over micro-batches and ranks ◀───┘

In fp32 the weights themselves are used, and there is no copy. Otherwise the copy stands in their place in the modules
from the first forward of a step to its last backward. The numbers are those of FSDP2 with the same precision, but for
weights that need no copy: layers that round a weight on its way give it a gradient that was never rounded.

Sums travel in one order on every rank, from the last weight to the first, about as backward meets them. A weight that
the last backward of this rank has not met waits for its end; one without a gradient adds zeros to the others' sum, and
where no rank has one it stays without.
"""

from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tokenmill_trainer.model.cpu.matmul import rounds
from tokenmill_trainer.model.linear import Embedding, Linear

_ATTRIBUTE = "_tokenmill_whole"


class Whole:
    """What a whole model has beside its weights: the copy to compute with, and the sums of gradients."""

    def __init__(self, model: nn.Module, dtype: torch.dtype, replicas: dist.ProcessGroup | None) -> None:
        """Stay with `model`, which computes in `dtype`; `replicas` are the ranks that hold it too, if any do."""
        self.replicas = replicas
        self._dtype = dtype
        self._places = _places(model)
        self._copied = [weight for weight in self._places if dtype != torch.float32 and not self._is_rounded(weight)]
        self._order = [weight for weight in reversed(self._places) if weight.requires_grad]
        self._ready: set[Tensor] = set()
        self._num_begun = 0
        """Weights of `_order` whose sum is under way."""
        self._copies: dict[nn.Parameter, nn.Parameter] = {}
        self._is_last = False
        self._sums: list[dist.Work] = []
        setattr(model, _ATTRIBUTE, self)
        for weight in set(self._order) - set(self._copied):
            weight.register_post_accumulate_grad_hook(self._sum_over_replicas)  # type: ignore[no-untyped-call]
        if self._copied:
            model.register_forward_pre_hook(lambda *_: self._use_copy())

    def prepare_backward(self, is_last: bool) -> None:
        """The backward that comes is, or is not, the last of its step: then sums travel, and the copy is let go."""
        self._is_last = is_last

    def finish_backward(self) -> None:
        """After the backward; after the last one all sums are there, and the weights are back in their place."""
        if self._is_last:
            if self.replicas is not None:
                self._finish_sums(self.replicas)
            self.release()

    def release(self) -> None:
        """Put the weights back in the place of their copy."""
        for weight, copy in self._copies.items():
            self._put(weight, weight)
            _free(copy)
        self._copies.clear()

    def _is_rounded(self, weight: nn.Parameter) -> bool:
        """Whether all who use it round it on their way; embeddings are told to."""
        modules = [module for module, _ in self._places[weight]]
        does = self._dtype == torch.bfloat16 and all(type(module) in (Linear, Embedding) for module in modules)
        if not does or not rounds(weight):
            return False
        for module in modules:
            if isinstance(module, Embedding):
                module.computes_in = self._dtype
        return True

    def _use_copy(self) -> None:
        if self._copies:
            return
        for weight in self._copied:
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
        """The gradient of `weight` is complete: sum it, and those that waited for it, if it is its turn."""
        if not self._is_last or self.replicas is None:
            return
        self._ready.add(weight)
        while self._num_begun < len(self._order) and self._order[self._num_begun] in self._ready:
            self._begin_sum(self.replicas)

    def _begin_sum(self, replicas: dist.ProcessGroup) -> None:
        gradient = self._order[self._num_begun].grad
        assert gradient is not None
        self._num_begun += 1
        self._sums.append(_all_reduce(gradient, dist.ReduceOp.SUM, replicas))

    def _finish_sums(self, replicas: dist.ProcessGroup) -> None:
        missing = [place for place, weight in enumerate(self._order) if weight.grad is None]
        has_gradient = torch.ones(len(self._order), dtype=torch.int32, device=self._order[0].device)
        for place in missing:
            has_gradient[place] = 0
            self._order[place].grad = torch.zeros_like(self._order[place])
        while self._num_begun < len(self._order):
            self._begin_sum(replicas)
        self._sums.append(_all_reduce(has_gradient, dist.ReduceOp.MAX, replicas))
        for work in self._sums:
            work.wait()
        for place in missing:
            if not has_gradient[place]:
                self._order[place].grad = None
        self._sums.clear()
        self._ready.clear()
        self._num_begun = 0


def whole(model: nn.Module) -> Whole:
    """What `model`, which lies whole on its rank, has beside its weights."""
    found = getattr(model, _ATTRIBUTE)
    assert isinstance(found, Whole)
    return found


def _all_reduce(tensor: Tensor, how: dist.ReduceOp.RedOpType, group: dist.ProcessGroup) -> dist.Work:
    work: dist.Work | None = dist.all_reduce(tensor, how, group=group, async_op=True)
    assert work is not None
    return work


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
