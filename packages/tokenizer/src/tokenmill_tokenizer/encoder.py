"""Encoding batches of documents to ids."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill_tokenizer.open import load


class Encoder:
    """Texts to ids with the tokenizer at `url`.

    What looks like a special token in a text is ordinary text: it becomes ordinary ids. Special ids enter the data only
    where a stage puts them.
    """

    def __init__(self, url: str) -> None:
        self._tokenizer: Any = load(url)
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, texts: Sequence[str], end_id: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(ids of all texts one after the other, number of ids of each), each text closed by `end_id` if given."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        end = [] if end_id is None else [end_id]
        parts = [encoding.ids + end for encoding in encodings]
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        ids = np.fromiter(itertools.chain.from_iterable(parts), np.int64, int(lengths.sum()))
        return ids, lengths

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens included."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text
