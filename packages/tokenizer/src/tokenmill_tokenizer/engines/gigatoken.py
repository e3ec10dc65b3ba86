"""gigatoken as the fast engine. Importing this imports gigatoken and awkward.

Words it has met before it looks up, and it forgets none of them. On text that keeps repeating itself, as languages and
code do, this comes to some 100 MB; on text that does not, such as hashes, to six bytes of memory a byte. So it starts
anew every `RENEW_BYTES`, which costs some 4% of the time.

Texts with characters too new for `tokenizers` are left to it.
"""

from importlib.metadata import version
from typing import Any

import awkward as ak  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa
import tokenizers
from gigatoken import Tokenizer
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import column_buffers
from tokenmill_tokenizer.engines.backend import Backend, Encoded
from tokenmill_tokenizer.engines.new_characters import have_new_characters
from tokenmill_tokenizer.engines.reference import Reference
from tokenmill_tokenizer.engines.support import UnsupportedError, plain_tokenizer

RENEW_BYTES = 512 << 20
"""Bytes of text after which known words are forgotten: they take 3 GiB at the very most."""


class Gigatoken:
    """gigatoken with the `tokenizer.json` in `content`, of which `tokenizers` makes `tokenizer`.

    Errors: `UnsupportedError` where its ids could differ from those of `tokenizers`, or it cannot open the file.
    """

    def __init__(self, content: bytes, tokenizer: tokenizers.Tokenizer, allow_special: bool) -> None:
        self._reference = Reference(tokenizer, allow_special)
        self._json = plain_tokenizer(content, tokenizer, allow_special)
        self._renew()
        self.label = f"gigatoken {version('gigatoken')}"

    def _renew(self) -> None:
        self._encoded_bytes = 0
        try:
            self._tokenizer = Tokenizer.from_json(self._json)
        except (RuntimeError, ValueError) as error:
            raise UnsupportedError(str(error).splitlines()[0]) from error

    def encode(self, texts: pa.Array) -> Encoded:
        """See `Backend.encode`. Neither texts nor ids are copied."""
        is_left = have_new_characters(column_buffers(texts))
        if is_left.any():
            return _encode_in_turn(self, self._reference, texts, is_left)
        if self._encoded_bytes >= RENEW_BYTES:
            self._renew()
        self._encoded_bytes += texts.nbytes
        encoded: Any = self._tokenizer.encode_batch(_without_nulls(texts), parallel=False)
        return ak.to_numpy(ak.flatten(encoded)), ak.to_numpy(ak.num(encoded)).astype(np.int64, copy=False)


def _encode_in_turn(fast: Backend, slow: Backend, texts: pa.Array, is_slow: NDArray[np.bool_]) -> Encoded:
    """Runs of neighbouring texts, each with its own engine."""
    starts = np.flatnonzero(np.diff(is_slow, prepend=not is_slow[0]))
    parts = [
        (slow if is_slow[start] else fast).encode(texts.slice(start, end - start))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(texts)], strict=True)
    ]
    return np.concatenate([ids for ids, _ in parts]), np.concatenate([lengths for _, lengths in parts])


def _without_nulls(texts: pa.Array) -> Any:
    # Arrow may keep a bitmap of nulls for an array that has none.
    _, offsets, data = texts.buffers()
    plain = pa.LargeStringArray.from_buffers(len(texts), offsets, data, null_count=0, offset=texts.offset)
    return ak.from_arrow(plain)
