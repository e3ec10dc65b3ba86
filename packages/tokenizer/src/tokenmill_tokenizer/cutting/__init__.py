"""Cutting documents into pieces: compiled for the named splits, through `tokenizers` for any other.

rule ─▶ open_cutter ─▶ native, where it agrees with `tokenizers` ─┐
                   └─▶ reference ─────────────────────────────────┴▶ cut(text buffers) ─▶ ends of the pieces
"""

from tokenmill_tokenizer.cutting.cutter import Cutter, open_cutter

__all__ = ["Cutter", "open_cutter"]
