"""Rotary positions: the phase is computed and kept in fp32, whatever the model is cast to.

At position 4095 bf16 tells apart only every 16th position, so a table that follows a model into bf16 gives neighbours
the same place. The table is therefore no parameter and no buffer: `.to()` and FSDP's casts never meet it.
"""

import math
from typing import Annotated, Literal

import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from tokenmill_core.manifest import Frozen
from tokenmill_trainer.model.cpu import functions

Rope = tuple[Tensor, Tensor]
"""(cos, sin), fp32, each (L, rotary size / 2) or (B, 1, L, rotary size / 2)."""


class Llama3Scaling(Frozen):
    """Llama 3.1 (arXiv:2407.21783): long waves are stretched by `factor`, short ones kept, those between blended."""

    model_config = ConfigDict(allow_inf_nan=False)

    kind: Literal["llama3"] = "llama3"
    """Which rule."""
    factor: float = Field(default=8.0, ge=1)
    """How much the slow frequencies are divided by."""
    low_freq_factor: float = Field(default=1.0, gt=0)
    """Waves longer than original_positions / this are stretched whole."""
    high_freq_factor: float = Field(default=4.0, gt=0)
    """Waves shorter than original_positions / this are kept."""
    original_positions: int = Field(default=8192, gt=0)
    """Context length of pretraining."""

    @property
    def table_factor(self) -> float:
        """What cos and sin are multiplied by."""
        return 1.0

    @property
    def softmax_factor(self) -> float:
        """What attention's scale is multiplied by."""
        return 1.0

    def scale(self, frequencies: Tensor, theta: float) -> Tensor:
        """The changed frequencies (size / 2,)."""
        del theta
        waves = 2 * math.pi / frequencies
        span = self.high_freq_factor - self.low_freq_factor
        kept = ((self.original_positions / waves - self.low_freq_factor) / span).clamp(0, 1)
        return (1 - kept) * frequencies / self.factor + kept * frequencies


class YarnScaling(Frozen):
    """YaRN (arXiv:2309.00071): frequencies that turn seldom within the old context are divided by `factor`."""

    model_config = ConfigDict(allow_inf_nan=False)

    kind: Literal["yarn"] = "yarn"
    """Which rule."""
    factor: float = Field(default=4.0, ge=1)
    """How much longer the context becomes."""
    original_positions: int = Field(default=4096, gt=0)
    """Context length of pretraining."""
    beta_fast: float = Field(default=32.0, gt=0)
    """Frequencies with at least so many turns in the old context are kept."""
    beta_slow: float = Field(default=1.0, gt=0)
    """Frequencies with at most so many turns are divided by `factor`."""
    mscale: float = Field(default=1.0, ge=0)
    """Weight of 0.1 · ln(factor) in what cos and sin are multiplied by."""
    mscale_all_dim: float = Field(default=0.0, ge=0)
    """The same for the whole score, squared, in place of the turned part alone (DeepSeek-V2 and later)."""

    @property
    def table_factor(self) -> float:
        """What cos and sin are multiplied by."""
        return self._magnitude(self.mscale) / self._magnitude(self.mscale_all_dim)

    @property
    def softmax_factor(self) -> float:
        """What attention's scale is multiplied by."""
        return self._magnitude(self.mscale_all_dim) ** 2

    def _magnitude(self, weight: float) -> float:
        return 0.1 * weight * math.log(self.factor) + 1

    def scale(self, frequencies: Tensor, theta: float) -> Tensor:
        """The changed frequencies (size / 2,)."""
        low, high = self.correction_range(2 * len(frequencies), theta)
        pairs = torch.arange(len(frequencies), device=frequencies.device, dtype=torch.float32)
        slow = ((pairs - low) / max(high - low, 1e-3)).clamp(0, 1)
        return frequencies / self.factor * slow + frequencies * (1 - slow)

    def correction_range(self, size: int, theta: float) -> tuple[int, int]:
        """The last pair that is kept and the first that is divided whole."""

        def pair_with(turns: float) -> float:
            return size * math.log(self.original_positions / (turns * 2 * math.pi)) / (2 * math.log(theta))

        return max(math.floor(pair_with(self.beta_fast)), 0), min(math.ceil(pair_with(self.beta_slow)), size - 1)


RopeScaling = Annotated[Llama3Scaling | YarnScaling, Field(discriminator="kind")]


class RotaryTable:
    """cos and sin of position × frequency, fp32, built once a device and grown on demand.

    Frequencies are θ^(-2i/D) for pair i; element i pairs with element i + D/2, as in the Hugging Face Llama.
    """

    def __init__(self, size: int, theta: float, scaling: Llama3Scaling | YarnScaling | None = None) -> None:
        self.size = size
        self.theta = theta
        self.scaling = scaling
        self._tables: dict[torch.device, Rope] = {}

    def __call__(self, start: int, length: int, device: torch.device) -> Rope:
        """(cos, sin), each (length, size / 2) fp32, for the positions from `start` on."""
        end = start + length
        table = self._tables.get(device)
        if table is None or len(table[0]) < end:
            table = self._tables[device] = self._build(end, device)
        return table[0][start:end], table[1][start:end]

    def at(self, positions_BL: Tensor) -> Rope:
        """(cos, sin), each (B, 1, L, size / 2) fp32, of positions below L: rows where documents start from 0."""
        cos, sin = self(0, positions_BL.shape[1], positions_BL.device)
        return cos[positions_BL].unsqueeze(1), sin[positions_BL].unsqueeze(1)

    def frequencies(self, device: torch.device) -> Tensor:
        """Radians a position, (size / 2,) fp32."""
        pairs = torch.arange(0, self.size, 2, device=device, dtype=torch.float32)
        plain = 1.0 / self.theta ** (pairs / self.size)
        return plain if self.scaling is None else self.scaling.scale(plain, self.theta)

    def _build(self, length: int, device: torch.device) -> Rope:
        positions = torch.arange(length, device=device, dtype=torch.float32)
        phase = torch.outer(positions, self.frequencies(device))
        if self.scaling is None or self.scaling.table_factor == 1:
            return phase.cos(), phase.sin()
        return phase.cos() * self.scaling.table_factor, phase.sin() * self.scaling.table_factor


def rotate(x: Tensor, rope: Rope) -> Tensor:
    """`x` (…, length, head size) turned by its positions; computed in fp32, returned in the type of `x`.

    Where the table is narrower than the head, the rest of the head stays as it is.
    """
    cos, sin = rope
    if functions.can_rotate(x, cos, sin):
        return functions.rotate(x, cos, sin)
    size = 2 * cos.shape[-1]
    first, second = x[..., :size].float().chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
    return turned if size == x.shape[-1] else torch.cat((turned, x[..., size:]), dim=-1)
