"""tiktoken ranks: lines of base64 and rank. The merges come of the ranks; split and special tokens stand elsewhere."""

import base64
import binascii
from dataclasses import dataclass, field

from tokenizers import decoders

from tokenmill_core.errors import InputError
from tokenmill_tokenizer.files.byte_characters import to_characters
from tokenmill_tokenizer.files.portable_regex import check_portable
from tokenmill_tokenizer.files.recovered_merges import recover_merges
from tokenmill_tokenizer.files.tokenizer_file import TokenizerFile, added_token, bpe_document
from tokenmill_tokenizer.importing.ids import check_id
from tokenmill_tokenizer.splits import Split, SplitRule, is_mergeable, pre_tokenizer


@dataclass(frozen=True)
class Published:
    """What is known of a published encoding beside its ranks."""

    split: Split
    special_tokens: dict[str, int] = field(default_factory=dict)


_GPT2 = Published(Split.GPT2, {"<|endoftext|>": 50256})
PUBLISHED = {
    "gpt2": _GPT2,
    "r50k_base": _GPT2,
    "p50k_base": _GPT2,
    "cl100k_base": Published(
        Split.CL100K,
        {
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k_base": Published(Split.O200K, {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}),
}
"""Encodings that a file's name stands for."""


def read_tiktoken(content: bytes, rule: SplitRule, special_tokens: dict[str, int]) -> TokenizerFile:
    """The tokenizer of these ranks, which gives the ids that tiktoken gives.

    Errors: `InputError` for lines that are none, bytes without a token, or special tokens that cannot be.
    """
    ranks = read_ranks(content)
    check_portable(rule.regex)
    vocabulary = {to_characters(token): rank for token, rank in ranks.items()}
    merges = recover_merges(ranks, lambda token: [token[place : place + 1] for place in range(len(token))])
    # tiktoken looks a whole piece up before it merges: so it gives tokens that no merges come to.
    looks_up = len(merges) + 256 < len(ranks)
    _check_special_tokens(special_tokens, vocabulary)
    if looks_up:
        _check_cut(special_tokens, rule)
    document = bpe_document(
        vocabulary | special_tokens,
        [(to_characters(left), to_characters(right)) for left, right in merges.values()],
        [added_token(token, index, special=True) for token, index in special_tokens.items()],
        pre_tokenizer=pre_tokenizer(rule),
        decoder=decoders.ByteLevel(),
        ignore_merges=looks_up,
    )
    return TokenizerFile(document)


def read_ranks(content: bytes) -> dict[bytes, int]:
    """Token ─▶ rank, which is its id. Every byte must have a token, so that no text is unknown."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        token, rank = _read_line(line, number)
        if token in ranks:
            raise InputError(f"line {number}: {line.decode()!r} has the token of rank {ranks[token]} again")
        ranks[token] = rank
    if len(set(ranks.values())) < len(ranks):
        raise InputError("ranks: two tokens have the same rank; each needs its own")
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise InputError(f"ranks: {len(missing)} bytes have no token, such as 0x{missing[0]:02X}; is the file whole?")
    return ranks


def _read_line(line: bytes, number: int) -> tuple[bytes, int]:
    try:
        token, rank = line.split()
        content, index = base64.b64decode(token, validate=True), int(rank)
    except (ValueError, binascii.Error) as error:
        shown = line[:60].decode("utf-8", "backslashreplace")
        raise InputError(f"line {number}: {shown!r} is not a base64 token and its rank ({error})") from error
    if not content or index < 0:
        raise InputError(f"line {number}: {line.decode()!r}: a token has bytes, and its rank is 0 or more")
    check_id(to_characters(content), index)
    return content, index


def _check_special_tokens(special_tokens: dict[str, int], vocabulary: dict[str, int]) -> None:
    owners = {rank: token for token, rank in vocabulary.items()}
    for token, index in special_tokens.items():
        if not token or index < 0:
            raise InputError(f"special_tokens: {token!r} = {index}: a token has characters, and its id is 0 or more")
        check_id(token, index)
        if token in vocabulary:
            raise InputError(
                f"special_tokens: {token!r} = {index}: this is the token of id {vocabulary[token]} already; use another"
            )
        if index in owners:
            raise InputError(f"special_tokens: {token!r} = {index}: this id is that of {owners[index]!r}; give another")
        owners[index] = token


def _check_cut(special_tokens: dict[str, int], rule: SplitRule) -> None:
    """Where whole pieces are looked up, none must be a special token."""
    for token in special_tokens:
        if is_mergeable(token, rule):
            raise InputError(
                f"special_tokens: {token!r} is one piece to the split, so the same word in a text could not be told "
                f"from it; use one that is cut, such as <|{token.strip('<|>') or 'name'}|>"
            )
