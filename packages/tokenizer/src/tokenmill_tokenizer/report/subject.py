"""A tokenizer under report: its vocabulary, its encoder, and whether texts come back."""

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenmill_core import storage
from tokenmill_core.compiled.text_buffers import column_buffers
from tokenmill_core.manifest import TOKENIZER_NAME
from tokenmill_tokenizer.decode import Decoder
from tokenmill_tokenizer.encoder import Encoder
from tokenmill_tokenizer.open import OpenedTokenizer, load, open_tokenizer
from tokenmill_tokenizer.report.sources import split_name
from tokenmill_tokenizer.report.tally import differs
from tokenmill_tokenizer.report.vocabulary import Vocabulary, read_vocabulary


@dataclass(frozen=True)
class Subject:
    """One of the tokenizers that a report compares."""

    name: str
    opened: OpenedTokenizer

    @cached_property
    def tokenizer(self) -> Any:
        """The `tokenizers.Tokenizer`."""
        return load(self.opened.url)

    @cached_property
    def encoder(self) -> Encoder:
        """Its encoder. Errors: `InputError` where documents can forge a special token."""
        return Encoder(self.opened.url)

    @cached_property
    def decoder(self) -> Decoder:
        """Its decoder."""
        return Decoder(self.opened.url)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Its tokens."""
        return read_vocabulary(self.tokenizer)

    def fails(self, texts: pa.Array, ids: NDArray[np.uint32], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of `texts` (large_string) are not what their ids decode to."""
        if self.vocabulary.byte_level:
            return differs(ids, lengths, self.vocabulary.buffers, column_buffers(texts))
        parts = np.split(ids, np.cumsum(lengths)[:-1]) if len(lengths) else []
        pairs = zip(map(self.decoder.decode, parts), texts.to_pylist(), strict=True)
        return np.fromiter((back != text for back, text in pairs), np.bool_, len(lengths))


def open_subject(argument: str) -> Subject:
    """The tokenizer that `NAME=PATH` or a path names."""
    name, path = split_name(argument)
    opened = open_tokenizer(path)
    return Subject(name=name or _default_name(opened), opened=opened)


def _default_name(opened: OpenedTokenizer) -> str:
    """That of the dataset; of a file its own, or its folder's where it has the usual name."""
    for loaded in opened.inputs.manifests:
        return str(loaded.manifest.name)
    folder, file = os.path.split(storage.local_path(opened.url) if storage.is_local(opened.url) else opened.url)
    name = os.path.basename(folder) if file == TOKENIZER_NAME else file.removesuffix(".json")
    return storage.storable(name)
