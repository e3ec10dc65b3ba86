"""What attention keeps of the positions already read, so that generation costs one position a token."""

import torch
from torch import Tensor

from tokenmill_trainer.model.config import ModelConfig


class KeyValueCache:
    """Room for `capacity` positions of every layer, filled from the start.

    A layer keeps two tensors (B, heads, position, size): keys and values, or what it makes them from.
    """

    def __init__(self, num_layers: int, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        """Positions that every layer has seen."""
        self._keys: list[Tensor | None] = [None] * num_layers
        self._values: list[Tensor | None] = [None] * num_layers

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add (B, K, n, d) keys and values to `layer`; all it holds now, (B, K, length + n, d) each.

        The last layer to be told moves `length` on.
        """
        end = self.length + keys.shape[2]
        assert end <= self.capacity, f"{end} positions in a cache of {self.capacity}"
        all_keys = self._put(self._keys, layer, keys, end)
        all_values = self._put(self._values, layer, values, end)
        if layer == len(self._keys) - 1:
            self.length = end
        return all_keys, all_values

    def _put(self, store: list[Tensor | None], layer: int, new: Tensor, end: int) -> Tensor:
        held = store[layer]
        if held is None:
            held = store[layer] = torch.empty(
                (*new.shape[:2], self.capacity, new.shape[3]), dtype=new.dtype, device=new.device
            )
        held[:, :, self.length : end] = new
        return held[:, :, :end]

    @property
    def num_bytes(self) -> int:
        """Memory that the cache takes."""
        return sum(held.nbytes for held in (*self._keys, *self._values) if held is not None)


def cache_bytes_per_token(config: ModelConfig, bytes_per_number: int = 2) -> int:
    """Bytes that one position takes in the cache, over all layers; 2 bytes a number are bf16."""
    if config.mla is not None:
        numbers = config.mla.kv_rank + config.mla.rope_head_dim
    else:
        numbers = 2 * config.kv_heads * config.head_size
    return numbers * config.num_layers * bytes_per_number
