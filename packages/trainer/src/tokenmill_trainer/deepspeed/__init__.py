"""Configs of DeepSpeed as settings of ours: `pretrain run --deepspeed ds.json`."""

from tokenmill_trainer.deepspeed.run_values import RunValues
from tokenmill_trainer.deepspeed.translate import Translated, read_deepspeed, translate

__all__ = ["RunValues", "Translated", "read_deepspeed", "translate"]
