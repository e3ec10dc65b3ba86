"""The special tokens that mark a document rearranged for filling in the middle (arXiv:2207.14255)."""

from collections.abc import Mapping

from tokenmill_core import storage
from tokenmill_core.errors import InputError
from tokenmill_core.manifest import TOKENIZER_NAME
from tokenmill_core.mixture_manifest import FimTokens
from tokenmill_tokenizer.open import load, special_tokens_of

USUAL = (
    ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
    ("<fim_prefix>", "<fim_middle>", "<fim_suffix>"),
    ("<fim-prefix>", "<fim-middle>", "<fim-suffix>"),
    ("<PRE>", "<MID>", "<SUF>"),
    ("▁<PRE>", "▁<MID>", "▁<SUF>"),
    ("[PREFIX]", "[MIDDLE]", "[SUFFIX]"),
    ("<｜fim▁begin｜>", "<｜fim▁end｜>", "<｜fim▁hole｜>"),
)
"""Before prefix, middle and suffix, as families of models call them."""


def fim_tokens(folder: str, names: tuple[str, str, str] | None) -> FimTokens:
    """Their ids in the `tokenizer.json` of the tokens dataset at `folder`; by default the first usual ones it has.

    Raises:
        InputError: it has none of them, or not three of its own.
    """
    url = storage.join(folder, TOKENIZER_NAME)
    tokenizer = load(url)
    special = {token.content: id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    chosen = names or next((usual for usual in USUAL if all(name in special for name in usual)), None)
    if chosen is None:
        raise InputError(
            f"{url}: none of the usual tokens for filling in the middle, such as {', '.join(USUAL[0])}; "
            f"give --fim-tokens PREFIX,MIDDLE,SUFFIX; {special_tokens_of(tokenizer)}"
        )
    return _ids(url, chosen, special, special_tokens_of(tokenizer))


def _ids(url: str, names: tuple[str, str, str], special: Mapping[str, int], known: str) -> FimTokens:
    if missing := [name for name in names if name not in special]:
        raise InputError(f"{url}: no special token {missing[0]!r} for filling in the middle; {known}")
    if len(set(names)) < len(names):
        raise InputError(f"fim_tokens {','.join(names)}: prefix, middle and suffix need a token each")
    prefix, middle, suffix = (special[name] for name in names)
    return FimTokens(prefix=prefix, middle=middle, suffix=suffix)
