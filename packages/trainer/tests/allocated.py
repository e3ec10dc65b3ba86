"""Bytes of tensors that are really there: every storage is seen when an operator makes it, and asked its size."""

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class AllocatedBytes(TorchDispatchMode):
    """Inside its `with` block: what is alive of all that was made there."""

    def __init__(self) -> None:
        super().__init__()
        self.peak: int | None = None
        """The most there was since this was set to 0; none: nobody asks yet."""
        self._storages: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    @property
    def now(self) -> int:
        return sum(storage.nbytes() for storage in self._storages)

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it comes again, for the part that is here
        result = func(*args, **(kwargs or {}))
        storages = {leaf.untyped_storage() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)}
        if any(storage not in self._storages for storage in storages):
            self._storages.update(storages)
            if self.peak is not None:
                self.peak = max(self.peak, self.now)
        return result
