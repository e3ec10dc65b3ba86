"""Cutting with compiled code."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_tokenizer.cutting.characters import character_kinds
from tokenmill_tokenizer.cutting.cl100k import cut_cl100k
from tokenmill_tokenizer.cutting.gpt2 import cut_gpt2
from tokenmill_tokenizer.cutting.o200k import cut_o200k
from tokenmill_tokenizer.splits import Split, SplitRule

CUTS = {
    Split.GPT2: cut_gpt2,
    Split.CL100K: cut_cl100k,
    Split.O200K: cut_o200k,
    Split.LLAMA3: cut_cl100k,
    Split.QWEN2: cut_cl100k,
}
NO_LIMIT = np.iinfo(np.int64).max


@dataclass(frozen=True)
class NativeCutter:
    """The named splits with any groups of digits, in linear time, without the GIL."""

    rule: SplitRule

    def cut(self, text: TextBuffers) -> NDArray[np.int64]:
        """See `Cutter.cut`."""
        # At most a piece a byte; memory that is never written is never really taken, and the rest is given back.
        ends = np.empty(int(text.offsets[-1] - text.offsets[0]), np.int64)
        most_digits = self.rule.most_digits or NO_LIMIT
        num_pieces = CUTS[self.rule.split](text.data, text.offsets, character_kinds(), most_digits, ends)
        ends.resize(num_pieces, refcheck=False)
        return ends
