"""Scales that no architecture of `transformers` has, moved into the weights beside them.

scores · s            queries · s · sqrt(d): into their norm, or else their projection
logits ÷ r (muP)      the last norm ÷ r
"""

from torch import Tensor

from tokenmill_trainer.hf.layout import State
from tokenmill_trainer.model import ModelConfig


def folded(config: ModelConfig, state: State) -> tuple[ModelConfig, State]:
    """The model without `attention_scale` and muP; logits stay what they are, up to rounding."""
    plain = config.model_copy(update={"attention_scale": None, "mup_base_width": None})
    of_queries = config.softmax_scale / plain.softmax_scale
    return plain, {name: _folded(config, name, value, of_queries) for name, value in state.items()}


def _folded(config: ModelConfig, name: str, value: Tensor, of_queries: float) -> Tensor:
    if _makes_queries(config, name):
        return _times(value, of_queries, config.norm_offset and name.endswith("q_norm.weight"))
    if name in ("norm.weight", "norm.bias"):
        return _times(value, 1 / config.width_ratio, config.norm_offset)
    return value


def _makes_queries(config: ModelConfig, name: str) -> bool:
    if config.qk_norm != "none":
        return name.endswith("self_attn.q_norm.weight")
    return name.endswith(("self_attn.q_proj.weight", "self_attn.q_proj.bias", "self_attn.q_b_proj.weight"))


def _times(weight: Tensor, factor: float, offset: bool) -> Tensor:
    return (1 + weight) * factor - 1 if offset else weight * factor
