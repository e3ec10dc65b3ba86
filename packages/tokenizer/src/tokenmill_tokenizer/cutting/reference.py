"""Cutting any rule's pieces with the pre-tokenizer itself."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_tokenizer.splits import SplitRule, pre_tokenizer


@dataclass(frozen=True)
class ReferenceCutter:
    """Right by definition, and some hundred times slower than compiled code."""

    rule: SplitRule

    def cut(self, text: TextBuffers) -> NDArray[np.int64]:
        """See `Cutter.cut`."""
        cutting = pre_tokenizer(self.rule)
        ends = [np.empty(0, np.int64)]
        for first, last in zip(text.offsets[:-1].tolist(), text.offsets[1:].tolist(), strict=True):
            pieces = cutting.pre_tokenize_str(text.data[first:last].tobytes().decode("utf-8"))
            # By then a byte is a character.
            ends.append(first + np.cumsum([len(piece) for piece, _ in pieces], dtype=np.int64))
        return np.concatenate(ends)
