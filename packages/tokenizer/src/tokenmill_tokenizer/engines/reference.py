"""`tokenizers` as the engine whose ids are right by definition."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from tokenmill_tokenizer.engines.backend import Encoded

THREADS = "TOKENIZERS_PARALLELISM"


class Reference:
    """The text alone becomes ids: what a file says of truncation, padding and ids to add is for inference."""

    def __init__(self, tokenizer: Tokenizer, allow_special: bool) -> None:
        tokenizer.encode_special_tokens = not allow_special
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self.label = f"tokenizers {version('tokenizers')}"

    def encode(self, texts: pa.Array) -> Encoded:
        """See `Backend.encode`."""
        ids = [np.empty(0, np.uint32)]
        with _one_thread():
            # One at a time: an encoding takes a hundred times the memory of its ids.
            for text in texts:
                (encoding,) = self._tokenizer.encode_batch_fast([text.as_py()], add_special_tokens=False)
                ids.append(np.array(encoding.ids, np.uint32))
        return np.concatenate(ids), np.fromiter(map(len, ids[1:]), np.int64, len(texts))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Stages run in processes, each on one core. The library would start threads, and warn when a process forks later.

    It asks the environment at each call; what that said before stands again afterwards, for training wants threads.
    """
    before = os.environ.get(THREADS)
    os.environ[THREADS] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before
