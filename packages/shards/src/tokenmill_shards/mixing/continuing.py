"""Going on with an earlier mixture: both agree on every sample before the token where the new one takes over.

The order is keyed by the oldest of the mixtures, and a source's draws are counted through all stages, so a source that
stays goes on exactly where it was, in the middle of an epoch or not.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, load_input, load_manifest
from tokenmill_core.mixture_manifest import Continued, FimTokens, MixtureManifest, MixtureStage
from tokenmill_shards.mixing.amounts import EVERY, amount_for
from tokenmill_shards.mixing.request import MixConfig
from tokenmill_shards.mixing.shares import DENOMINATOR

Datasets = dict[str, LoadedManifest[TokensManifest]]


def load_earlier(config: MixConfig) -> LoadedManifest[MixtureManifest] | None:
    """The mixture that `config` goes on with, or none.

    Raises:
        ConfigError: it says to go on, but not with what or from where, or with another seed or validation share.
    """
    if (config.continues is None) != (config.continue_from is None):
        raise ConfigError("going on with a mixture needs both --continue MIXTURE and --from TOKENS, such as --from 5B")
    if config.continues is None:
        return None
    earlier = load_manifest(config.continues, MixtureManifest)
    for name in ("seed", "validation_share"):
        given, old = getattr(config, name), getattr(earlier.manifest, name)
        if name in config.model_fields_set and given != old:
            raise ConfigError(
                f"{name} {given}: {earlier.url} has {old}, and a mixture that goes on with it must, too: leave it out"
            )
    return earlier


def with_earlier_sources(earlier: LoadedManifest[MixtureManifest], given: Datasets) -> Datasets:
    """`given`, and the sources of `earlier` that are not among them, by name.

    Raises:
        ConfigError: one that is given had another name.
        InputError: one that is given is another dataset than it was.
    """
    called = {earlier.manifest.inputs[source.input].digest: source.name for source in earlier.manifest.sources}
    for name, loaded_tokens in given.items():
        old = called.get(loaded_tokens.manifest.digest, name)
        if old not in given:
            raise ConfigError(f"source {name!r} was called {old!r} in {earlier.url}: call it {old!r} here, too")
    datasets = dict(given)
    for source in earlier.manifest.sources:
        reference = earlier.manifest.inputs[source.input]
        if source.name not in given:
            loaded = load_input(earlier, source.input)
            assert isinstance(loaded.manifest, TokensManifest)
            datasets[source.name] = LoadedManifest(loaded.url, loaded.manifest)
        elif given[source.name].manifest.digest != reference.digest:
            raise InputError(
                f"source {source.name!r} is another dataset than in {earlier.url} "
                f"({given[source.name].manifest.digest[:12]}…, not {reference.digest[:12]}…): give it a name of its own"
            )
    return dict(sorted(datasets.items()))


def with_earlier_fim(
    config: MixConfig, earlier: LoadedManifest[MixtureManifest], names: Sequence[str]
) -> dict[str, Any]:
    """The settings for filling in the middle: of the sources that `earlier` has its own, of the new ones those given.

    Raises:
        ConfigError: a source that `earlier` has is to have others.
    """
    old = earlier.manifest
    rates = {source.name: source.fim_rate for source in old.sources}
    for name, rate in rates.items():
        given = amount_for(name, config.fim)
        if given is not None and float(given) != rate:
            raise ConfigError(
                f"fim {float(given):g}: source {name!r} has {rate:g} in {earlier.url}, and a mixture that goes on with "
                "it must, too: give rates of new sources alone, such as --fim NEW=0.5"
            )
    for_every = {name: config.fim[EVERY] for name in names if EVERY in config.fim}
    named = {name: rate for name, rate in config.fim.items() if name != EVERY}
    kept = {name: Decimal(repr(rate)) for name, rate in rates.items() if rate}
    settings = {"fim": for_every | named | kept}
    shares = [source.fim_spm_share for source in old.sources if source.fim_rate]
    if not shares:
        return settings
    if "fim_spm_share" in config.model_fields_set and config.fim_spm_share != shares[0]:
        raise ConfigError(
            f"fim_spm_share {config.fim_spm_share}: {earlier.url} has {shares[0]}, and a mixture that goes on with it "
            "must, too: leave it out"
        )
    return settings | {"fim_spm_share": shares[0], "fim_tokens": config.fim_tokens or old.config.get("fim_tokens")}


def refuse_other_fim_tokens(earlier: LoadedManifest[MixtureManifest], fim: FimTokens | None) -> None:
    """Raise `ConfigError` where `earlier` marks what it fills in by others than `fim`."""
    old = earlier.manifest.fim
    if None not in (old, fim) and old != fim:
        raise ConfigError(
            f"fim_tokens: {earlier.url} has other special tokens, and a mixture that goes on with it must have the "
            "same: leave them out"
        )


class Before(NamedTuple):
    """What a mixture takes over from an earlier one."""

    stages: tuple[MixtureStage, ...] = ()
    denominator: int = DENOMINATOR
    continues: tuple[Continued, ...] = ()
    """The mixtures that it agrees with, and up to where each: the oldest first."""


def before(earlier: MixtureManifest, token: int, names: Sequence[str]) -> Before:
    """What a mixture of the sources `names` takes over that goes on with `earlier` from `token`."""
    stages = []
    for stage in earlier.stages:
        weights = {source.name: weight for source, weight in zip(earlier.sources, stage.weights, strict=True)}
        if stage.first_token < token:
            stages.append(stage.model_copy(update={"weights": tuple(weights.get(name, 0) for name in names)}))
    older = (Continued(digest=c.digest, until_token=min(c.until_token, token)) for c in earlier.continues)
    continues = (*older, Continued(digest=earlier.digest, until_token=token))
    return Before(tuple(stages), earlier.denominator, continues)
