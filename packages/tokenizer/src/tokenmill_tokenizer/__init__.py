"""Byte-level BPE: training, encoding, and the tokenizer manifest."""

from tokenmill_tokenizer.encoder import Encoder
from tokenmill_tokenizer.open import OpenedTokenizer, open_tokenizer
from tokenmill_tokenizer.train import STAGE, TrainTokenizerConfig, TrainTokenizerStage

__all__ = [
    "STAGE",
    "Encoder",
    "OpenedTokenizer",
    "TrainTokenizerConfig",
    "TrainTokenizerStage",
    "open_tokenizer",
]
__version__ = "0.1.0"
