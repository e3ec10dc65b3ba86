"""Model FLOPs and what share of the hardware's peak they are.

Counted are the multiply-adds a training step cannot do without: no recomputation, and causal attention once.
"""

import torch

from tokenmill_trainer.model import ModelConfig, build_on_meta, num_parameters

PEAK_BF16_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12}
"""Dense bf16 FLOP/s by what the device's name contains (vendor's figures, SXM forms)."""


def flops_per_token(config: ModelConfig, sequence_length: int) -> float:
    """FLOPs of forward and backward for one token: 6 · (parameters in matrix products) + 6 · (s/2) · H · 2d · layers.

    The input embedding is a look-up and is left out; the head is a product and counts, tied or not.
    """
    parameters = num_parameters(build_on_meta(config))
    if not config.tied_embeddings:
        parameters -= config.vocabulary * config.hidden_size
    attention = 6 * (sequence_length / 2) * config.num_heads * 2 * config.head_size * config.num_layers
    return 6 * parameters + attention


def peak_flops(device: torch.device, given: float | None) -> float | None:
    """FLOP/s of one device: `given`, or the vendor's figure for a known GPU, or none."""
    if given is not None or device.type != "cuda":
        return given
    name = torch.cuda.get_device_name(device)
    return next((flops for part, flops in PEAK_BF16_FLOPS.items() if part in name), None)
