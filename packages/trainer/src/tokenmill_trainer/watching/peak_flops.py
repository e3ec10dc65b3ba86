"""What a device can do at most, the measure of a model's FLOPs."""

import re
import time
from collections.abc import Callable
from typing import Literal

import torch

from tokenmill_trainer.layout.config import DTYPES, Precision
from tokenmill_trainer.world import World

GPU_FLOPS: dict[str, tuple[float, float]] = {
    "GB200": (80e12, 2500e12),
    "B200": (75e12, 2250e12),
    "H200 NVL": (60e12, 835.5e12),
    "H200": (66.9e12, 989.4e12),
    "GH200": (66.9e12, 989.4e12),
    "H100 PCIe": (51.2e12, 756.5e12),
    "H100 NVL": (60e12, 835.5e12),
    "H100": (66.9e12, 989.4e12),
    "A100": (19.5e12, 312e12),
    "A10": (31.2e12, 125e12),
    "A30": (10.3e12, 165e12),
    "L40S": (91.6e12, 362.05e12),
    "L40": (90.5e12, 181.05e12),
    "MI300X": (163.4e12, 1307.4e12),
}
"""(fp32, bf16 and fp16) FLOP/s by the words of the device's name: the vendor's dense figures, fp32 without TF32."""

MATMUL_SIZES = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the matrices whose product is timed: large enough to be bound by arithmetic."""
MATMUL_TIMES = 5


def peak_flops(setting: float | Literal["measure"] | None, world: World, precision: Precision) -> float | None:
    """FLOP/s of one device in `precision`: as the setting says, or the vendor's figure for a known GPU, or none.

    Collective where it is measured: all ranks at once, as they compute in training, and the mean counts.
    """
    if setting == "measure":
        return world.sum([matmul_flops(world.device, DTYPES[precision])])[0] / world.size
    if setting is not None or world.device.type != "cuda":
        return setting
    return vendor_flops(torch.cuda.get_device_name(world.device), precision)


def vendor_flops(device_name: str, precision: Precision) -> float | None:
    """The figure of the GPU that CUDA calls `device_name`, or none where it is not in the table."""
    words = set(re.split(r"[^A-Za-z0-9]+", device_name))
    known = [name for name in GPU_FLOPS if words.issuperset(name.split())]
    return GPU_FLOPS[max(known, key=len)][precision != "fp32"] if known else None


def matmul_flops(device: torch.device, dtype: torch.dtype, now: Callable[[], float] = time.perf_counter) -> float:
    """FLOP/s of the product of two square matrices: the best of five after one that warms up."""
    size = MATMUL_SIZES[device.type]
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    seconds = []
    for _ in range(1 + MATMUL_TIMES):
        begin = now()
        left @ right
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(now() - begin)
    return 2 * size**3 / min(seconds[1:])
