"""Encoding batches of documents to ids.

texts ─▶ gigatoken, once it has proven itself against `tokenizers` ─▶ ids
      └▶ `tokenizers`, where it has not ────────────────────────────▶ ids
"""

import logging
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache

import pyarrow as pa
from tokenizers import Tokenizer

from tokenmill_core import storage
from tokenmill_core.errors import InputError
from tokenmill_tokenizer.engines import Backend, Encoded, Reference
from tokenmill_tokenizer.engines.nasty_texts import nasty_texts
from tokenmill_tokenizer.engines.proof import first_texts, prove
from tokenmill_tokenizer.engines.support import UnsupportedError
from tokenmill_tokenizer.open import load

NUM_SPECIALS, NUM_WORDS = 100, 1000
"""How many special and other tokens a proof tries the texts of."""

logger = logging.getLogger("tokenmill")


class Engine(StrEnum):
    """What encodes. All give the same ids."""

    AUTO = "auto"
    """gigatoken where it gives the ids of `tokenizers`, else `tokenizers`."""
    GIGATOKEN = "gigatoken"
    """gigatoken or an error."""
    TOKENIZERS = "tokenizers"
    """The reference, some forty times slower."""


class Encoder:
    """Texts to ids with the `tokenizer.json` at `url`: the text alone, with nothing put before or after it.

    What looks like a special token in a text is ordinary text, and becomes ordinary ids, unless `allow_special`.

    gigatoken proves itself on difficult texts when a process first opens a file, in some 20 ms, and on real ones by
    `prove_on`, in 0.1 s.

    Errors: `InputError` for a file that is no tokenizer, one where ordinary text would come to a special id, and with
    `Engine.GIGATOKEN` one that gigatoken encodes differently or not at all.
    """

    def __init__(self, url: str, engine: Engine = Engine.AUTO, allow_special: bool = False) -> None:
        self._url = url
        self._wanted = Engine(engine)
        self._reference, self._fast = _open(url, storage.read_bytes(url), self._wanted, allow_special)

    @property
    def engine(self) -> str:
        """Library and version in use, such as `gigatoken 0.10.0`."""
        return (self._fast or self._reference).label

    def encode(self, texts: pa.Array) -> Encoded:
        """(ids of all texts one after the other, number of ids of each) of a large_string array without nulls."""
        return (self._fast or self._reference).encode(texts)

    def prove_on(self, texts: pa.Array) -> None:
        """Compare the engines on the first `proof.REAL_BYTES` of `texts`; on a difference this encoder changes over.

        Errors: `InputError` on a difference with `Engine.GIGATOKEN`.
        """
        difference = self._fast and prove(self._fast, self._reference, first_texts(texts))
        if difference:
            self._fast = None
            _distrust(self._url, self._wanted, difference)


# Kept, since a process opens the same file for each of its tasks; so are the words that gigatoken knows by then.
@lru_cache(maxsize=2)
def _open(url: str, content: bytes, engine: Engine, allow_special: bool) -> tuple[Reference, Backend | None]:
    tokenizer: Tokenizer = load(url)
    reference = Reference(tokenizer, allow_special)
    specials = {token.content: id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    if not allow_special:
        _check_specials(url, reference, specials)
    if engine is Engine.TOKENIZERS:
        return reference, None
    try:
        return reference, _proven(content, tokenizer, allow_special, list(specials))
    except (ImportError, UnsupportedError) as error:
        _distrust(url, engine, str(error))
        return reference, None


def _proven(content: bytes, tokenizer: Tokenizer, allow_special: bool, specials: list[str]) -> Backend:
    # Here, since it takes 0.1 s that the other engine can do without.
    from tokenmill_tokenizer.engines.gigatoken import Gigatoken

    fast = Gigatoken(content, tokenizer, allow_special)
    texts = nasty_texts(specials[:NUM_SPECIALS], _sample_vocabulary(tokenizer))
    difference = prove(fast, Reference(tokenizer, allow_special), pa.array(texts, pa.large_string()))
    if difference:
        raise UnsupportedError(difference)
    return fast


def _sample_vocabulary(tokenizer: Tokenizer) -> Iterator[str]:
    size = tokenizer.get_vocab_size(with_added_tokens=False)
    for id in range(0, size, max(1, size // NUM_WORDS)):
        yield tokenizer.decode([id], skip_special_tokens=False)


def _check_specials(url: str, reference: Reference, specials: dict[str, int]) -> None:
    ids, _ = reference.encode(pa.array(list(specials), pa.large_string()))
    found = set(ids.tolist()) & set(specials.values())
    if found:
        token = next(token for token, id in specials.items() if id in found)
        raise InputError(
            f"{url}: added_tokens: the special token {token!r} is an ordinary word to this tokenizer, so texts would "
            "come to hold its id; rename it, or make it not special"
        )


def _distrust(url: str, engine: Engine, reason: str) -> None:
    if engine is Engine.GIGATOKEN:
        raise InputError(
            f"{url}: gigatoken cannot encode with this tokenizer: {reason}; use --engine auto or tokenizers"
        )
    logger.warning("%s: encoding with tokenizers, which is slower, and not gigatoken: %s", url, reason)
