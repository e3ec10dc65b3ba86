"""Manifests of what samples are drawn from: a mixture of token datasets, or one written out in training order."""

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tokenmill_core.manifest import Count, Frozen, Kind, ManifestBase, Sha256


class MixtureSource(Frozen):
    """One source of a mixture. `input` is its place in the manifest's `inputs`."""

    name: str
    input: Count
    documents: Count
    tokens: Count
    shard_tokens: tuple[Count, ...]
    """Tokens of each of the dataset's shards: where each begins is known before one is opened."""
    held_out_documents: Count = 0
    held_out_tokens: tuple[Count, ...] = ()
    """Tokens of the held-out documents of each shard; empty where the mixture holds nothing out."""
    loss_mask: bool = False
    """Whether the dataset says which tokens count for the loss."""
    fim_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the documents in a sample that are rearranged for filling in the middle (arXiv:2207.14255)."""
    fim_spm_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of these that get suffix, prefix, middle; the others prefix, suffix, middle."""

    @property
    def num_held_out_tokens(self) -> int:
        """Tokens that training never sees."""
        return sum(self.held_out_tokens)

    @property
    def training_tokens(self) -> int:
        """Tokens that an epoch of training draws from."""
        return self.tokens - self.num_held_out_tokens

    @model_validator(mode="after")
    def _shards_sum_up(self) -> Self:
        if sum(self.shard_tokens) != self.tokens:
            raise ValueError(f"source {self.name!r}: shard_tokens do not sum to its {self.tokens} tokens")
        pairs = zip(self.held_out_tokens, self.shard_tokens, strict=False)
        if self.held_out_tokens and len(self.held_out_tokens) != len(self.shard_tokens):
            raise ValueError(f"source {self.name!r}: held_out_tokens must have one number a shard")
        if any(held_out > tokens for held_out, tokens in pairs):
            raise ValueError(f"source {self.name!r}: a shard holds out more tokens than it has")
        return self


class MixtureStage(Frozen):
    """Weights that hold from one token of training on, up to the next stage or without end."""

    name: str
    first_token: Count
    """Tokens trained on before: the stage begins with the first sample that starts at or after this many."""
    weights: tuple[Count, ...]
    """Share of the samples of each source, as integers over the mixture's `denominator`."""


class Continued(Frozen):
    """An earlier mixture whose order this one goes on with: both agree on every sample before `until_token`."""

    digest: Sha256
    until_token: Count


class FimTokens(Frozen):
    """Ids of the special tokens that mark a document rearranged for filling in the middle."""

    prefix: Count
    middle: Count
    suffix: Count


class MixtureManifest(ManifestBase):
    """Which share of the samples comes from which token dataset, stage by stage, and the seed of their order."""

    kind: Literal[Kind.MIXTURE] = Kind.MIXTURE
    sources: tuple[MixtureSource, ...]
    stages: tuple[MixtureStage, ...]
    denominator: Annotated[int, Field(gt=0)]
    seed: int
    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of each source's documents, chosen by their hash, that training never sees."""
    continues: tuple[Continued, ...] = ()
    """The mixtures that this one goes on with, the oldest first; it shuffles by that one's digest."""
    dtype: Literal["uint16", "int32"]
    vocab_size: Count
    padded_vocab_size: Count
    tokenizer_sha256: Sha256
    """The one `tokenizer.json` of all sources."""
    end_of_document_id: int | None
    beginning_of_document_id: int | None = None
    fim: FimTokens | None = None
    """Needed where a source has a `fim_rate`."""

    @property
    def shuffle_digest(self) -> str:
        """What the order within each source is keyed by: this digest, or that of the mixture it goes on with."""
        return self.continues[0].digest if self.continues else self.digest

    @model_validator(mode="after")
    def _sources_hang_together(self) -> Self:
        names = [source.name for source in self.sources]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"sources: each needs a name of its own, and there must be one; got {names}")
        if any(source.input >= len(self.inputs) for source in self.sources):
            raise ValueError(f"sources: an input beyond the {len(self.inputs)} inputs is named")
        if self.fim is None and any(source.fim_rate for source in self.sources):
            raise ValueError("fim: a source has a fim_rate, but the tokens that mark the parts are not given")
        return self

    @model_validator(mode="after")
    def _stages_hang_together(self) -> Self:
        starts = [stage.first_token for stage in self.stages]
        if starts[:1] != [0] or any(a >= b for a, b in pairwise(starts)):
            raise ValueError(f"stages: the first must begin at token 0 and each later one after it; got {starts}")
        for stage in self.stages:
            if len(stage.weights) != len(self.sources) or sum(stage.weights) != self.denominator:
                raise ValueError(
                    f"stages: the weights of {stage.name!r} must be one a source and sum to {self.denominator}"
                )
        return self


class PackedManifest(ManifestBase):
    """A mixture written out in training order: sequences of `sequence_length` + 1 tokens, one after another.

    Shards are MMIDIDX: a "document" of the index is a sequence, its "sequences" are the pieces of documents in it and,
    last, its padding. `<shard>.pieces.parquet` has a row a piece that says where it came from.
    """

    kind: Literal[Kind.PACKED] = Kind.PACKED
    sequence_length: Annotated[int, Field(gt=0)]
    method: Literal["concat", "best-fit"]
    dtype: Literal["uint16", "int32"]
    vocab_size: Count
    padded_vocab_size: Count
    tokenizer_sha256: Sha256
    end_of_document_id: int | None
    beginning_of_document_id: int | None = None
    padding_id: Count
    """What fills sequences up; it never counts for the loss."""
    loss_mask: bool = False
    """Whether each shard has a `<shard>.loss_mask.bin`: a byte a token, 1 where the token counts for the loss."""
    shards: tuple[str, ...]
    shard_samples: tuple[Count, ...]
    """Sequences of each shard."""
    sources: tuple[str, ...]
    shard_source_tokens: tuple[tuple[Count, ...], ...]
    """For each shard, the labels that each of `sources` gives it."""
    epoch_tokens: tuple[Count, ...]
    """For each of `sources`, the labels that one epoch of it gives."""

    @property
    def num_samples(self) -> int:
        """Sequences in all shards."""
        return sum(self.shard_samples)
