"""What encodes: `tokenizers`, which says what is right, and gigatoken, which is fast."""

from tokenmill_tokenizer.engines.backend import Backend, Encoded
from tokenmill_tokenizer.engines.reference import Reference

__all__ = ["Backend", "Encoded", "Reference"]
