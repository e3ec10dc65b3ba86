"""Which document it is, in 64 bits: a hash of its text, or where there is only that, of its tokens.

Documents are held out of training by it, so it may never change: the same text must stay on its side.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray


def hash_texts(texts: pa.Array) -> NDArray[np.uint64]:
    """The hash of the UTF-8 bytes of each of `texts` (large_string, no nulls): never 0, and always odd."""
    from tokenmill_core.compiled.hashing import hash_each  # imports numba, which takes most of a second
    from tokenmill_core.compiled.text_buffers import column_buffers

    text = column_buffers(texts)
    return hash_each(text.data, text.offsets)


def hash_ids(ids: ArrayLike, offsets: ArrayLike) -> NDArray[np.uint64]:
    """The hash of each document's tokens, as little-endian int32 whatever type `ids` has.

    Document d is `ids[offsets[d]:offsets[d + 1]]`.
    """
    from tokenmill_core.compiled.hashing import hash_each

    data = np.ascontiguousarray(ids, "<i4").view(np.uint8)
    return hash_each(data, np.asarray(offsets, np.int64) * 4)
