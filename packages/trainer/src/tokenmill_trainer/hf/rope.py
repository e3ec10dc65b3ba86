"""Rotary settings as `transformers` writes them.

They are in `rope_parameters`; before its version 5 they were in `rope_theta` and `rope_scaling`.
"""

import math
from typing import Any

from tokenmill_core.errors import ConfigError
from tokenmill_trainer.model import ModelConfig
from tokenmill_trainer.model.rotary import Llama3Scaling, YarnScaling

DEFAULT_THETA = 10_000.0


def write_rope(config: ModelConfig) -> dict[str, Any]:
    """The rotary part of `config.json`, for readers of either version."""
    scaling: dict[str, Any] = {"rope_type": "default"}
    if isinstance(config.rope_scaling, Llama3Scaling):
        scaling = _write_llama3(config.rope_scaling)
    elif isinstance(config.rope_scaling, YarnScaling):
        scaling = _write_yarn(config.rope_scaling)
    return {
        "rope_theta": config.rope_theta,
        "rope_scaling": None if config.rope_scaling is None else scaling,
        "rope_parameters": {"rope_theta": config.rope_theta, **scaling},
    }


def _write_llama3(scaling: Llama3Scaling) -> dict[str, Any]:
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_positions,
    }


def _write_yarn(scaling: YarnScaling) -> dict[str, Any]:
    written = {
        "rope_type": "yarn",
        "factor": scaling.factor,
        "original_max_position_embeddings": scaling.original_positions,
        "beta_fast": scaling.beta_fast,
        "beta_slow": scaling.beta_slow,
    }
    if scaling.mscale_all_dim:
        return {**written, "mscale": scaling.mscale, "mscale_all_dim": scaling.mscale_all_dim}
    return written if scaling.mscale == 1 else {**written, "attention_factor": scaling.table_factor}


def read_rope(settings: dict[str, Any], *, scales_scores: bool = False) -> dict[str, Any]:
    """The rotary part of `config.json` as settings of ours.

    `scales_scores`: whether the architecture multiplies scores by YaRN's `mscale_all_dim`, as DeepSeek's do.
    """
    parameters = {**(settings.get("rope_scaling") or {}), **(settings.get("rope_parameters") or {})}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    theta = parameters.get("rope_theta", settings.get("rope_theta", DEFAULT_THETA))
    return {"rope_theta": theta, "rope_scaling": _read_scaling(kind, parameters, scales_scores)}


def _read_scaling(kind: str, parameters: dict[str, Any], scales_scores: bool) -> dict[str, Any] | None:
    if kind == "default":
        return None
    if kind not in ("llama3", "yarn"):
        raise ConfigError(f"config.json: rope_type {kind!r} cannot be imported; what can: 'default', 'llama3', 'yarn'")
    read = {
        "kind": kind,
        "factor": parameters["factor"],
        "original_positions": parameters["original_max_position_embeddings"],
    }
    if kind == "llama3":
        return {
            **read,
            "low_freq_factor": parameters["low_freq_factor"],
            "high_freq_factor": parameters["high_freq_factor"],
        }
    if not parameters.get("truncate", True):
        raise ConfigError("config.json: rope_parameters.truncate false cannot be imported; its ramp is another one")
    turns = {"beta_fast": parameters.get("beta_fast") or 32.0, "beta_slow": parameters.get("beta_slow") or 1.0}
    return {**read, **turns, **_read_magnitude(parameters, scales_scores)}


def _read_magnitude(parameters: dict[str, Any], scales_scores: bool) -> dict[str, float]:
    """`mscale` and `mscale_all_dim` that multiply cos, sin and scores as `transformers` does."""
    weights = (parameters.get("mscale") or 0.0, parameters.get("mscale_all_dim") or 0.0)
    stated, both = parameters.get("attention_factor"), all(weights)
    if both and scales_scores and stated is None:
        return {"mscale": weights[0], "mscale_all_dim": weights[1]}
    if stated is None and not both:
        return {"mscale": 1.0, "mscale_all_dim": 0.0}
    grown = YarnScaling(factor=parameters["factor"], mscale=weights[0], mscale_all_dim=weights[1])
    factor = grown.table_factor if stated is None else stated
    return {"mscale": 10 * (factor - 1) / math.log(parameters["factor"]), "mscale_all_dim": 0.0}
