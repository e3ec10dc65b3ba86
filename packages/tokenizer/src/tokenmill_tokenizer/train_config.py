"""Settings of `prep train-tokenizer`."""

from enum import StrEnum

from pydantic import Field, model_validator

from tokenmill_core.readers import ReadOptions
from tokenmill_tokenizer.files.tokenizer_file import MAX_VOCAB_SIZE
from tokenmill_tokenizer.splits import SplitRule, is_mergeable
from tokenmill_tokenizer.training.special_tokens import SpecialTokens

NUM_BYTES = 256
"""Every byte is a token, so no text is unknown."""


class Trainer(StrEnum):
    """What learns the merges. Both learn the same ones."""

    NATIVE = "native"
    TOKENIZERS = "tokenizers"
    """The trainer of `tokenizers`: slower, in one process; the check of the other."""


class TrainTokenizerConfig(SpecialTokens, SplitRule):
    """Settings of `prep train-tokenizer`."""

    vocab_size: int = Field(gt=NUM_BYTES, le=MAX_VOCAB_SIZE)
    """Number of ids wanted, bytes and special tokens included."""
    pad_to_multiple: int = Field(default=128, ge=1, le=1 << 16)
    """The manifest's `padded_vocab_size`, the rows of a model's embedding, is the next multiple of this."""
    min_frequency: int = Field(default=2, ge=1)
    """Fewest times a pair must occur to be merged."""
    sample_bytes: int | None = Field(default=None, gt=0)
    """Bytes of text to train on, shared out among the sources by their weights or sizes. None: all of them, or, where
    they have weights, as much as these allow."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Of the sample: which documents are in it."""
    trainer: Trainer = Field(default=Trainer.NATIVE, exclude=True)
    """What learns the merges, `native` or `tokenizers`: the same ones, so it is no part of what is recorded."""
    reader: ReadOptions = ReadOptions()

    @property
    def rule(self) -> SplitRule:
        """How text is cut."""
        return SplitRule(split=self.split, pattern=self.pattern, digit_group=self.digit_group)

    @model_validator(mode="after")
    def _room_for_specials(self) -> "TrainTokenizerConfig":
        specials = self.specials()
        if len(set(specials)) < len(specials):
            raise ValueError(f"special tokens must be distinct, got {specials}")
        if self.vocab_size < NUM_BYTES + len(specials):
            raise ValueError(
                f"vocab_size: {self.vocab_size} is less than 256 bytes and {len(specials)} special tokens; "
                f"ask for at least {NUM_BYTES + len(specials)}"
            )
        return self

    def _way_out(self, token: str) -> str:
        cut = f"<|{token.strip('<|>') or 'name'}|>"
        if is_mergeable(cut, self.rule):
            return "let the pattern cut words from signs"
        return f"use one that is cut, such as {cut}"

    @model_validator(mode="after")
    def _specials_are_no_text(self) -> "TrainTokenizerConfig":
        for token in self.specials():
            if is_mergeable(token, self.rule):
                raise ValueError(
                    f"special token {token!r} is one piece to the {self.pattern or self.split} split, so the same word "
                    f"in a text could not be told from it; {self._way_out(token)}"
                )
        return self


class WeightedTrainTokenizerConfig(TrainTokenizerConfig):
    """The settings together with the sources: the recorded config of a tokenizer."""

    sources: dict[str, tuple[str, ...]]
    """Inputs of each source."""
    weights: dict[str, float]
    """Weight of each source; empty where they go by their sizes."""
