"""Configs of DeepSpeed as settings of ours: `pretrain run --deepspeed ds.json`."""

from tokenmill_trainer.deepspeed.translate import Translated, read_deepspeed, translate

__all__ = ["Translated", "read_deepspeed", "translate"]
