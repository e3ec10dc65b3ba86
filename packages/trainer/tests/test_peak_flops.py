"""What mfu is measured by."""

import pytest
import torch

from tokenmill_trainer.watching.metrics import LoggingConfig
from tokenmill_trainer.watching.peak_flops import MATMUL_SIZES, matmul_flops, peak_flops, vendor_flops
from tokenmill_trainer.world import World

CPU = World(0, 1, torch.device("cpu"))


@pytest.mark.parametrize(
    ("name", "bf16", "fp32"),
    [
        ("NVIDIA H200", 989.4e12, 66.9e12),
        ("NVIDIA H100 80GB HBM3", 989.4e12, 66.9e12),
        ("NVIDIA H100 PCIe", 756.5e12, 51.2e12),
        ("NVIDIA A100-SXM4-80GB", 312e12, 19.5e12),
        ("NVIDIA A10", 125e12, 31.2e12),
        ("NVIDIA L40S", 362.05e12, 91.6e12),
        ("NVIDIA GB200", 2500e12, 80e12),
        ("NVIDIA A1000", None, None),
    ],
)
def test_the_vendors_figure_is_found_by_the_devices_name(name: str, bf16: float | None, fp32: float | None) -> None:
    assert vendor_flops(name, "bf16") == vendor_flops(name, "fp16") == bf16
    assert vendor_flops(name, "fp32") == fp32


def test_a_cpu_has_the_peak_that_is_given_or_none() -> None:
    assert peak_flops(None, CPU, "bf16") is None
    assert peak_flops(2e12, CPU, "bf16") == 2e12
    assert LoggingConfig(peak_flops="measure").peak_flops == "measure"
    with pytest.raises(ValueError, match="peak_flops"):
        LoggingConfig(peak_flops=0)
    with pytest.raises(ValueError, match="peak_flops"):
        LoggingConfig.model_validate({"peak_flops": "guess"})


def test_a_measured_peak_is_that_of_the_fastest_product_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MATMUL_SIZES, "cpu", 10)
    times = iter([0, 0.1, 1, 4, 5, 7, 8, 12, 13, 18, 20, 23])
    assert matmul_flops(CPU.device, torch.float32, lambda: next(times)) == 2 * 10**3 / 2
