"""Byte-level BPE: training, encoding and decoding, and the tokenizer dataset.

Here is what other packages build on; training, imports and reports are stages and commands of their own.
"""

from tokenmill_tokenizer.decode import Decoder, StreamDecoder, token_bytes
from tokenmill_tokenizer.encoder import Encoder, Engine
from tokenmill_tokenizer.open import OpenedTokenizer, open_tokenizer

__all__ = ["Decoder", "Encoder", "Engine", "OpenedTokenizer", "StreamDecoder", "open_tokenizer", "token_bytes"]
__version__ = "0.1.0"
