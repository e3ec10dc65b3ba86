"""Model FLOPs: what a token costs, whatever the hardware does for it.

Counted are the multiply-adds a training step cannot do without: no recomputation, and causal attention once.
"""

from tokenmill_trainer.model.config import ModelConfig
from tokenmill_trainer.model.decoder import build_on_meta, num_parameters
from tokenmill_trainer.model.feed_forward import GATED


def num_active_parameters(config: ModelConfig) -> int:
    """Parameters that one token meets: all, but of the routed experts only those it takes."""
    total = num_parameters(build_on_meta(config))
    if config.moe is None:
        return total
    projections = 3 if config.activation in GATED else 2
    expert = projections * config.hidden_size * config.moe.expert_intermediate_size
    sparse_layers = sum(config.is_sparse(layer) for layer in range(config.num_layers))
    return total - sparse_layers * (config.moe.num_experts - config.moe.experts_per_token) * expert


def flops_per_token(config: ModelConfig, sequence_length: int) -> float:
    """FLOPs of forward and backward for one token.

    6 · (active parameters in matrix products) + 6 · H · (d of keys + d of values) · attended positions, summed over
    layers. Token and position embeddings are look-ups and are left out; the head is a product and counts, tied or not.
    """
    parameters = num_active_parameters(config)
    if not config.tied_embeddings:
        parameters -= config.vocabulary * config.hidden_size
    if config.position == "learned":
        parameters -= (config.max_positions or 0) * config.hidden_size
    attended = sum(_mean_attended(sequence_length, config.window_of(layer)) for layer in range(config.num_layers))
    return 6 * parameters + 6 * config.num_heads * (config.head_size + config.value_size) * attended


def _mean_attended(length: int, window: int | None) -> float:
    """Positions that a token attends to, the mean over a row: half of them, or the window once it is full."""
    full = min(window or length, length)
    return full - full * full / (2 * length)
