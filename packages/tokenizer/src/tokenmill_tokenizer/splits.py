"""How text is cut into pieces before BPE merges inside them. No merge crosses a cut."""

from enum import StrEnum

from tokenizers import Regex, decoders, pre_tokenizers


class Split(StrEnum):
    """Named splits, called after the tokenizers that made them known."""

    GPT2 = "gpt2"
    CL100K = "cl100k"


CL100K_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Contractions; a word with the one character before it; up to three digits; signs with the line ends after them; white
space. Unlike gpt2, letters of any case contract and long numbers are cut."""


def pre_tokenizer(split: Split) -> pre_tokenizers.PreTokenizer:
    """The pre-tokenizer for `split`: the cuts, then bytes as printable characters. No space is put in front."""
    if split is Split.GPT2:
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    cut = pre_tokenizers.Split(Regex(CL100K_PATTERN), behavior="isolated")
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def is_mergeable(token: str, split: Split) -> bool:
    """Whether merges in ordinary text can come to the vocabulary entry `token`, so that it could not be told apart."""
    if not set(token) <= set(pre_tokenizers.ByteLevel.alphabet()):
        return False
    text = decoders.ByteLevel().decode([token])
    # What is no whole character lies within one, and no split cuts there.
    return "\ufffd" in text or len(pre_tokenizer(split).pre_tokenize_str(text)) == 1
