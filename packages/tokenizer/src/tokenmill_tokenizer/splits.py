"""How text is cut into pieces before BPE merges inside them: no merge crosses a cut.

Nothing is normalised and no space is put in front, so the pieces of a text joined are that text, byte for byte.
"""

from enum import StrEnum

from pydantic import Field, model_validator
from tokenizers import Regex, decoders, pre_tokenizers

from tokenmill_core.manifest import Frozen


class Split(StrEnum):
    """Named splits, called after the tokenizers that made them known.

    "Letters", "numbers" and "white space" are Unicode's, "signs" is all else, combining marks included. A run of
    white space before anything else is cut before its last character, which a word or sign may then take in front.
    """

    GPT2 = "gpt2"
    """Letters, numbers or signs, each with one space before; white space. Contractions in lower case ('s 't 're 've 'm
    'll 'd) stand apart. Numbers are of any length."""
    CL100K = "cl100k"
    """Letters with one character before them that is no letter, number or line end; up to three digits; signs with one
    space before and the line ends after; white space up to its last line end; other white space. Contractions of any
    case stand apart, and from what follows: 'store is cut to 's and tore."""
    O200K = "o200k"
    """As cl100k, but words are cut where a capital follows a small letter (camelCase); combining marks belong to words;
    a contraction stays with its word; signs take slashes along with the line ends after them."""
    LLAMA3 = "llama3"
    """The same pieces as cl100k."""
    QWEN2 = "qwen2"
    """As cl100k, with each digit by itself. Qwen's own tokenizers normalise to NFC first; this one does not, so that
    what is decoded is what was encoded."""


CONTRACTIONS = r"'s|'t|'re|'ve|'m|'ll|'d"
LEAD = r"[^\r\n\p{L}\p{N}]?"
"""The one character that cl100k and its kin let a word have before it."""
WORD_HEAD = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
"""What an o200k word begins with: no small letters."""
WORD_TAIL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
"""What an o200k word ends in: no capitals."""
LAST_SPACE_APART = r"\s+(?!\S)|\s+"

DIGIT_GROUPS: dict[Split, int | None] = {
    Split.GPT2: None,
    Split.CL100K: 3,
    Split.O200K: 3,
    Split.LLAMA3: 3,
    Split.QWEN2: 1,
}
"""Most digits of a piece where nothing else is asked for; None is any number."""

MOST_REPEATS = 100_000
"""Oniguruma counts no further."""


class SplitRule(Frozen):
    """How a tokenizer cuts text."""

    split: Split = Split.CL100K
    """How text is cut before merging: `gpt2`, `cl100k`, `o200k`, `llama3` or `qwen2`."""
    pattern: str | None = Field(default=None, min_length=1)
    """A regular expression (Oniguruma's syntax) in place of `split`: each match is a piece, and so is what stands
    between two of them. Nothing is lost."""
    digit_group: int | None = Field(default=None, ge=1, le=MOST_REPEATS)
    """Most digits of a piece: numbers are cut from the left into groups of so many. None: as `split` says (gpt2: any
    number; qwen2: 1; the others: 3)."""

    @model_validator(mode="after")
    def _pattern_is_whole(self) -> "SplitRule":
        if self.pattern is None:
            return self
        if self.digit_group is not None:
            raise ValueError(
                f"digit_group: {self.digit_group} has no effect on a pattern of your own; "
                rf"leave it out and write \p{{N}}{{1,{self.digit_group}}} into the pattern"
            )
        try:
            Regex(self.pattern)
        except Exception as error:  # the library raises bare Exception
            raise ValueError(
                f"pattern: {self.pattern!r} is no regular expression in Oniguruma's syntax ({error}); correct it"
            ) from error
        return self

    @property
    def most_digits(self) -> int | None:
        """Most digits of a piece of a named split; None is any number."""
        return self.digit_group or DIGIT_GROUPS[self.split]

    @property
    def regex(self) -> str:
        """The regular expression whose matches are the pieces."""
        if self.pattern is not None:
            return self.pattern
        number = _number(self.most_digits)
        if self.split is Split.GPT2:
            return rf"{CONTRACTIONS}| ?\p{{L}}+| ?{number}| ?[^\s\p{{L}}\p{{N}}]+|{LAST_SPACE_APART}"
        any_case = f"(?i:{CONTRACTIONS})"
        if self.split is Split.O200K:
            words = "|".join(
                f"{LEAD}{letters}{any_case}?" for letters in (f"{WORD_HEAD}*{WORD_TAIL}+", f"{WORD_HEAD}+{WORD_TAIL}*")
            )
            ends = r"[\r\n/]*"
        else:
            words, ends = rf"{any_case}|{LEAD}\p{{L}}+", r"[\r\n]*"
        return rf"{words}|{number}| ?[^\s\p{{L}}\p{{N}}]+{ends}|\s*[\r\n]+|{LAST_SPACE_APART}"


def _number(most_digits: int | None) -> str:
    if most_digits is None:
        return r"\p{N}+"
    # Spelt as in the published splits: readers of tokenizer.json know these strings, not their equivalents.
    return r"\p{N}" if most_digits == 1 else rf"\p{{N}}{{1,{most_digits}}}"


def pre_tokenizer(rule: SplitRule) -> pre_tokenizers.PreTokenizer:
    """The pre-tokenizer for `rule`: the cuts, then bytes as printable characters."""
    if rule == SplitRule(split=Split.GPT2):
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    cut = pre_tokenizers.Split(Regex(rule.regex), behavior="isolated")
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def is_mergeable(token: str, rule: SplitRule) -> bool:
    """Whether merges in ordinary text can come to the vocabulary entry `token`, so that it could not be told apart."""
    if not set(token) <= set(pre_tokenizers.ByteLevel.alphabet()):
        return False
    text = decoders.ByteLevel().decode([token])
    # What is no whole character lies within one, and no split cuts there.
    return "\ufffd" in text or len(pre_tokenizer(rule).pre_tokenize_str(text)) == 1
