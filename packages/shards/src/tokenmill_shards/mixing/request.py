"""What may be asked of a mixture: the settings of `prep mix`, and what of them is recorded in its manifest."""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from tokenmill_core.errors import ConfigError
from tokenmill_core.manifest import Frozen
from tokenmill_core.mixture_manifest import Continued
from tokenmill_shards.mixing.amounts import EVERY, Amounts, Shares, Size, Tokens


class Method(StrEnum):
    """Where the shares of sources come from, before bounds."""

    TEMPERATURE = "temperature"
    """Share ∝ size^(1/T)."""
    UNIFORM = "uniform"
    """All alike."""
    UNIMAX = "unimax"
    """All alike up to `max_epochs` of each: UniMax (arXiv:2304.09151)."""


class Unit(StrEnum):
    """What the size of a source is counted in."""

    TOKENS = "tokens"
    DOCUMENTS = "documents"
    BYTES = "bytes"


class ShareRules(Frozen):
    """How the shares of the sources come about in one stage of training."""

    weights: dict[str, Size] = {}
    """Size of each source; a source not named has 0. Empty: sizes are counted in `unit`."""
    method: Method = Method.TEMPERATURE
    """`temperature`, `uniform` or `unimax`."""
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """T in share ∝ size^(1/T): 1 keeps the proportions of the sizes, above 1 evens them out."""
    unit: Unit = Unit.TOKENS
    """What sizes are counted in where no weights are given: `tokens`, `documents` or `bytes`."""
    epochs: Amounts = {}
    """Exactly so many epochs of a source in this stage; the other sources share the rest."""
    max_epochs: Amounts = {}
    """At most so many epochs of a source from the start of training to the end of the stage; what is above it goes to
    the others in proportion to their shares."""
    max_share: Shares = {}
    """At most this share of the stage for a source, likewise."""

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        if self.method != Method.TEMPERATURE and (self.weights or self.temperature != 1 or self.unit != Unit.TOKENS):
            raise ConfigError(
                f"method {self.method} takes all sources alike: leave out weights, temperature and unit, or the method"
            )
        if self.weights and self.unit != Unit.TOKENS:
            raise ConfigError(f"unit {self.unit} counts sizes, but weights are given: leave out one of them")
        return self

    def names(self) -> set[str]:
        """All sources that a setting names."""
        return {*self.weights, *self.epochs, *self.max_epochs, *self.max_share} - {EVERY}


class StageRules(ShareRules):
    """Shares that hold from one token of training on. Bounds it does not set are those of the whole mixture."""

    from_tokens: Tokens
    """Tokens trained on before the stage begins, such as "8B"."""
    name: str | None = None
    """What figures call it; none: `stage-2` and so on."""


class MixSettings(ShareRules):
    """What decides a mixture, besides its datasets."""

    stages: tuple[StageRules, ...] = ()
    """What holds later, stage by stage; before the first of them, the settings above."""
    tokens: Tokens | None = None
    """Token budget of the whole run, such as "10B": needed where epochs bound the shares, and of no consequence for the
    mixture where they do not."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Seed of the data's order."""
    validation_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of each source's documents, chosen by a hash of their text, that is held out for validation."""
    fim: Shares = {}
    """Share of a source's documents that are rearranged for filling in the middle."""
    fim_spm_share: float = Field(default=0.5, ge=0, le=1)
    """Share of these that get suffix, prefix, middle; the others prefix, suffix, middle."""
    fim_tokens: tuple[str, str, str] | None = None
    """Special tokens before prefix, middle and suffix; none: the first usual ones that the tokenizer has."""


class MixConfig(MixSettings):
    """Settings of `prep mix`."""

    continues: str | None = None
    """Path of an earlier mixture that this one goes on with."""
    continue_from: Tokens | None = None
    """Tokens trained on with the earlier mixture before this one takes over, such as "5B"."""


class MixRequest(MixSettings):
    """The recorded config of a mixture. `tokens` stand in it only where the shares depend on them."""

    sources: tuple[str, ...]
    """Names, in the order of the inputs."""
    left_out: tuple[str, ...] = ()
    """Sources of the earlier mixture that are no longer drawn from."""
    continues: Continued | None = None
    """The earlier mixture, and from which token on this one goes on."""


def refuse_unknown_names(settings: MixSettings, names: tuple[str, ...]) -> None:
    """Raise `ConfigError` where a setting names no source."""
    named = settings.names() | {name for stage in settings.stages for name in stage.names()} | {*settings.fim} - {EVERY}
    if unknown := sorted(named - set(names)):
        raise ConfigError(f"no source is called {unknown[0]!r}: the sources are {', '.join(names)}")
