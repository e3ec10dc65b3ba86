"""Rotary positions: the phase is computed and kept in fp32, whatever the model is cast to.

At position 4095 bf16 tells apart only every 16th position, so a table that follows a model into bf16 gives neighbours
the same place. The table is therefore no parameter and no buffer: `.to()` and FSDP's casts never meet it.
"""

import torch
from torch import Tensor


class RotaryTable:
    """cos and sin of position × frequency, fp32, built once a device and grown on demand.

    Frequencies are θ^(-2i/D) for pair i; element i pairs with element i + D/2, as in the Hugging Face Llama.
    """

    def __init__(self, head_dim: int, theta: float) -> None:
        self.head_dim = head_dim
        self.theta = theta
        self._tables: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __call__(self, start: int, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """(cos, sin), each (length, head_dim / 2) fp32, for the positions from `start` on."""
        end = start + length
        table = self._tables.get(device)
        if table is None or len(table[0]) < end:
            table = self._tables[device] = self._build(end, device)
        return table[0][start:end], table[1][start:end]

    def at(self, positions_BL: Tensor) -> tuple[Tensor, Tensor]:
        """(cos, sin), each (B, 1, L, head_dim / 2) fp32, of positions below L: rows where documents start from 0."""
        cos, sin = self(0, positions_BL.shape[1], positions_BL.device)
        return cos[positions_BL].unsqueeze(1), sin[positions_BL].unsqueeze(1)

    def _build(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        pairs = torch.arange(0, self.head_dim, 2, device=device, dtype=torch.float32)
        frequencies = 1.0 / self.theta ** (pairs / self.head_dim)
        positions = torch.arange(length, device=device, dtype=torch.float32)
        phase = torch.outer(positions, frequencies)
        return phase.cos(), phase.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x` (…, length, head_dim) turned by its positions; computed in fp32, returned in the type of `x`."""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
