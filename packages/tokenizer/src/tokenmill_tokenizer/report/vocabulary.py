"""The tokens of a vocabulary as bytes and as text."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.text_buffers import TextBuffers
from tokenmill_tokenizer.decode import is_byte_level, token_bytes


@dataclass(frozen=True)
class Vocabulary:
    """The tokens by id. An id that no token has is there too, as no bytes and no text."""

    tokens: tuple[bytes, ...]
    texts: tuple[str | None, ...]
    """None also where the bytes are no whole characters."""
    entries: tuple[str | None, ...]
    """The tokens as the tokenizer.json spells them."""
    special: NDArray[np.bool_]
    """Which are special tokens."""
    byte_level: bool
    """Whether the bytes of the ids of a text, one after the other, are the text."""

    @cached_property
    def buffers(self) -> TextBuffers:
        """The bytes of all tokens as one buffer."""
        offsets = np.zeros(len(self.tokens) + 1, np.int64)
        np.cumsum([len(token) for token in self.tokens], out=offsets[1:])
        return TextBuffers(data=np.frombuffer(b"".join(self.tokens), np.uint8), offsets=offsets)

    @cached_property
    def num_bytes(self) -> NDArray[np.int64]:
        """Bytes of each token."""
        return self.buffers.num_bytes

    @cached_property
    def ordinary(self) -> NDArray[np.bool_]:
        """Which ids have a token that is not special."""
        return ~self.special & ~_is_none(self.entries)

    @cached_property
    def partial(self) -> NDArray[np.bool_]:
        """Which ordinary tokens are no whole characters."""
        return self.ordinary & _is_none(self.texts)


def read_vocabulary(tokenizer: Any) -> Vocabulary:
    """The vocabulary of a `tokenizers.Tokenizer`."""
    tokens = token_bytes(tokenizer)
    special = np.zeros(len(tokens), np.bool_)
    for index, added in tokenizer.get_added_tokens_decoder().items():
        special[index] = added.special
    entries: list[str | None] = [None] * len(tokens)
    for entry, index in tokenizer.get_vocab(with_added_tokens=True).items():
        entries[index] = entry
    texts = [None if entry is None else _text(token) for entry, token in zip(entries, tokens, strict=True)]
    return Vocabulary(
        tokens=tuple(tokens),
        texts=tuple(texts),
        entries=tuple(entries),
        special=special,
        byte_level=is_byte_level(tokenizer),
    )


def shown(token: bytes) -> str:
    """`token` as a Python literal: nothing in it is invisible, and quotes show where it ends."""
    text = _text(token)
    return repr(token if text is None else text)


def _text(token: bytes) -> str | None:
    try:
        return token.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _is_none(values: Sequence[str | None]) -> NDArray[np.bool_]:
    return np.array([value is None for value in values], np.bool_)
