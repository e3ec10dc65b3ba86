"""What an engine is."""

from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Encoded: TypeAlias = tuple[NDArray[np.uint32], NDArray[np.int64]]
"""Ids of all texts one after the other, and the number of ids of each text."""


class Backend(Protocol):
    """A tokenizer in the hands of one library, on one thread."""

    label: str
    """Library and version, such as `tokenizers 0.23.1`."""

    def encode(self, texts: pa.Array) -> Encoded:
        """The ids of a large_string array without nulls."""
        ...
