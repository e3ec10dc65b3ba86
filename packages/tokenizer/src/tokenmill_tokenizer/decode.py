"""Ids back to text: whole, or as they come.

Byte-level tokens are strings of bytes, which need not be whole characters: those of a text are joined, then read as
UTF-8. Other tokenizers are left to `tokenizers`, whose decoders look at neighbouring tokens.
"""

import codecs
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models

from tokenmill_core.errors import InputError
from tokenmill_tokenizer.files.byte_characters import to_bytes
from tokenmill_tokenizer.open import load

SPACE = "▁"
"""What stands for a space in SentencePiece's vocabularies."""

Ids = Iterable[int] | NDArray[np.integer]


def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes of each id, special tokens' being their text; empty where there is no such id.

    Of tokenizers with a space before each word, such as SentencePiece's, tokens hold that space; decoding drops the
    first of a text.
    """
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    table = [b""] * (max(vocabulary.values(), default=-1) + 1)
    of_token = _from_byte_level if is_byte_level(tokenizer) else _from_sentencepiece
    for token, id in vocabulary.items():
        table[id] = of_token(token)
    for id, added in tokenizer.get_added_tokens_decoder().items():
        table[id] = added.content.encode()
    return table


def byte_lengths(tokenizer: Tokenizer, vocab_size: int) -> NDArray[np.int64] | None:
    """(V,) How many bytes of a text each id spells, for V at least `vocab_size`: none for special tokens.

    Those of the ids of a text sum to its length in UTF-8, as it is after the tokenizer's normaliser. None where tokens
    are not strings of bytes: what one spells then depends on its neighbours.
    """
    if not is_byte_level(tokenizer):
        return None
    lengths = [len(text) for text in token_bytes(tokenizer)]
    for id, added in tokenizer.get_added_tokens_decoder().items():
        if added.special:
            lengths[id] = 0
    return np.pad(np.array(lengths, np.int64), (0, max(0, vocab_size - len(lengths))))


def is_byte_level(tokenizer: Tokenizer) -> bool:
    """Whether the characters of a token stand for bytes."""
    steps = (tokenizer.decoder, tokenizer.pre_tokenizer)
    # A sequence of steps is opaque, but for what it would be saved as.
    return any(step is not None and b'"ByteLevel"' in step.__getstate__() for step in steps)


def _from_byte_level(token: str) -> bytes:
    own = to_bytes(token)
    # A vocabulary may hold special tokens as they are written.
    return token.encode() if own is None else own


def _from_sentencepiece(token: str) -> bytes:
    byte = _fallback_byte(token)
    return token.replace(SPACE, " ").encode() if byte is None else bytes([byte])


def _fallback_byte(token: str) -> int | None:
    """The byte that a token such as `<0x0A>` stands for."""
    if len(token) != 6 or not (token.startswith("<0x") and token.endswith(">")):
        return None
    try:
        return int(token[3:5], 16)
    except ValueError:
        return None


class Decoder:
    """Ids of the `tokenizer.json` at `url` back to text, special tokens to their own.

    Errors: `InputError` for an id that no token has.
    """

    is_byte_level: bool
    """Whether its tokens are bytes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._tokenizer: Tokenizer = load(url)
        self._bytes = {id: text for id, text in enumerate(token_bytes(self._tokenizer)) if text}
        self.is_byte_level = is_byte_level(self._tokenizer)
        model = self._tokenizer.model
        self._has_byte_tokens = isinstance(model, models.BPE) and model.byte_fallback

    def decode(self, ids: Ids) -> str:
        """The text of `ids`, with U+FFFD for bytes that are no character."""
        if self.is_byte_level:
            return self.decode_bytes(ids).decode(errors="replace")
        known = self._check(ids)
        return str(self._tokenizer.decode(known, skip_special_tokens=False))

    def decode_bytes(self, ids: Ids) -> bytes:
        """The text of `ids` in UTF-8; where tokens are bytes, exactly these, whole characters or not."""
        if not self.is_byte_level:
            return self.decode(ids).encode()
        return b"".join(map(self._bytes.__getitem__, self._check(ids)))

    def _check(self, ids: Ids) -> list[int]:
        """`ids` as a list. Errors: `InputError` for one that no token has."""
        listed = list(map(int, ids))
        unknown = next((id for id in listed if id not in self._bytes), None)
        if unknown is not None:
            raise InputError(
                f"{self._url}: no token has the id {unknown}; decode with the tokenizer that gave these ids, and "
                "leave out those that only pad the vocabulary"
            )
        return listed

    def _ends_run(self, id: int) -> bool:
        """Whether what comes after `id` cannot change what it and those before it decode to."""
        return self._has_byte_tokens and _fallback_byte(self._tokenizer.id_to_token(id) or "") is None


class StreamDecoder:
    """Text as its ids come. All that is fed and finished, joined, is what `decoder` makes of all the ids together.

    With byte-level tokens, the bytes of a character are held until it is whole; with others, a run of tokens that each
    are one byte until it is over, since one bad byte spoils them all.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._held: list[int] = []
        self._before: list[int] = []
        """The last token given out: what follows it decodes otherwise than what opens a text."""

    def feed(self, ids: Ids) -> str:
        """The whole characters that have come to be known. Errors: `InputError` for an id that no token has."""
        if self._decoder.is_byte_level:
            return self._utf8.decode(self._decoder.decode_bytes(ids))
        self._held += self._decoder._check(ids)
        end = len(self._held)
        while end and not self._decoder._ends_run(self._held[end - 1]):
            end -= 1
        return self._give(end)

    def finish(self) -> str:
        """What is left, with U+FFFD for what is no whole character."""
        return self._utf8.decode(b"", final=True) + self._give(len(self._held))

    def _give(self, end: int) -> str:
        given, self._held = self._held[:end], self._held[end:]
        if not given:
            return ""
        skip = len(self._decoder.decode(self._before)) if self._before else 0
        text = self._decoder.decode(self._before + given)[skip:]
        self._before = given[-1:]
        return text
