"""The model: one decoder, assembled by its config."""

from tokenmill_trainer.model.config import LatentConfig, ModelConfig, MoEConfig
from tokenmill_trainer.model.decoder import Decoder, build_on_meta, num_parameters

__all__ = ["Decoder", "LatentConfig", "MoEConfig", "ModelConfig", "build_on_meta", "num_parameters"]
