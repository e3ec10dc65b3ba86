"""What a cutter is, and which one serves a rule."""

import logging
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_tokenizer.cutting.check import find_difference
from tokenmill_tokenizer.cutting.native import NativeCutter
from tokenmill_tokenizer.cutting.reference import ReferenceCutter
from tokenmill_tokenizer.splits import SplitRule

logger = logging.getLogger("tokenmill")


class Cutter(Protocol):
    """Cuts documents into pieces. Threads may share one."""

    def cut(self, text: TextBuffers) -> NDArray[np.int64]:
        """Where each piece of each document ends, in order: bytes of `text.data`, as `text.offsets`.

        The end of a document is the end of its last piece; an empty document has none.
        """
        ...


@cache
def open_cutter(rule: SplitRule) -> Cutter:
    """The fastest cutter whose pieces are those of the pre-tokenizer that `rule` gives a tokenizer.

    The compiled one is compared with the installed `tokenizers` before its first use. Where they differ, as another
    version of Unicode would make them, a warning says so and `tokenizers` itself cuts.
    """
    reference = ReferenceCutter(rule)
    return reference if rule.pattern is not None else proven(NativeCutter(rule), reference)


def proven(native: NativeCutter, reference: ReferenceCutter) -> Cutter:
    """`native`, where it cuts as `reference` does, else `reference`."""
    difference = find_difference(native, reference)
    if difference is None:
        return native
    logger.warning("split %s: %s; cutting with tokenizers, which takes longer", native.rule.split, difference)
    return reference
