"""The `mix` stage: tokens datasets and weights ─▶ a mixture manifest. No token is touched.

Source i has size q_i, its tokens or the weight given with it. Its share is p_i = q_i^(1/T) / Σ q_j^(1/T): T = 1 keeps
the proportions, a higher temperature evens them out. Shares are kept as integers over a common denominator, so that
they are the same on every machine.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, ClassVar

from pydantic import Field

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.manifest import (
    Counts,
    Frozen,
    ManifestBase,
    MixtureManifest,
    MixtureSource,
    TokensManifest,
)
from tokenmill_core.manifest_io import LoadedManifest, load_manifest
from tokenmill_core.named_sources import NamedSource, parse_source, refuse_repeated_names, refuse_some_weights
from tokenmill_core.stage import Inputs, Phase, Stage, StageType, Work

_LOG = logging.getLogger("tokenmill")

DENOMINATOR = 1 << 40
"""Shares are multiples of 2⁻⁴⁰: 9e-13."""
_CONTEXT = Context(prec=60)
"""Decimal arithmetic gives the same digits on every machine; the platform's `pow` need not."""


class MixConfig(Frozen):
    """Settings of `prep mix`."""

    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """T of the formula above."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Seed of the data's order."""
    validation_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of each source's windows that is kept for validation."""


class SolvedMixConfig(MixConfig):
    """The settings together with what was solved for: the recorded config of a mixture."""

    weights: dict[str, int]
    """Integer weight of each source."""


@dataclass(frozen=True)
class MixStage(Stage):
    """See the module's docstring."""

    name: ClassVar[str] = "mix"
    version: ClassVar[int] = 1
    tools: ClassVar[tuple[str, ...]] = ("tokenmill-shards",)
    reads_input_files: ClassVar[bool] = False

    config: SolvedMixConfig
    inputs: Inputs
    dataset_name: str

    def phases(self) -> Sequence[Phase]:
        """None: all is known from the manifests."""
        return ()

    def manifest(self, common: dict[str, Any], work: Work) -> ManifestBase:
        """The mixture manifest."""
        manifests: list[TokensManifest] = [loaded.manifest for loaded in self.inputs.manifests]
        sources = tuple(
            MixtureSource(name=name, input=i, weight=weight, documents=m.counts.documents, tokens=m.counts.tokens)
            for i, ((name, weight), m) in enumerate(zip(self.config.weights.items(), manifests, strict=True))
        )
        totals = {unit: sum(getattr(m.counts, unit) for m in manifests) for unit in ("documents", "bytes", "tokens")}
        counts = Counts(**totals, input_documents=totals["documents"], input_bytes=totals["bytes"])
        first = self.inputs.manifests[0]
        return MixtureManifest(
            **common | {"counts": counts},
            sources=sources,
            denominator=sum(self.config.weights.values()),
            seed=self.config.seed,
            validation_share=self.config.validation_share,
            vocab_size=first.manifest.vocab_size,
            padded_vocab_size=max(item.manifest.padded_vocab_size for item in self.inputs.manifests),
            tokenizer_sha256=first.manifest.tokenizer_sha256,
            end_of_document_id=first.manifest.end_of_document_id,
        )


def solve_weights(sizes: Sequence[Decimal], temperature: float, denominator: int = DENOMINATOR) -> list[int]:
    """Integer weights with the shares p_i = q_i^(1/T) / Σ q_j^(1/T), summing to `denominator` by largest remainder.

    A size of 0 gets 0, any other at least 1. Ties in the remainders go to the larger size, then to the first.
    """
    power = _CONTEXT.divide(Decimal(1), Decimal(repr(temperature)))
    # Relative to the largest, so that no power passes what a decimal holds: a vanishing one is 0, and still gets 1.
    relative = [_CONTEXT.divide(size, max(sizes)) for size in sizes]
    raised = [_CONTEXT.power(ratio, power) if ratio else Decimal(0) for ratio in relative]
    total = sum(raised, Decimal(0))
    exact = [_CONTEXT.divide(_CONTEXT.multiply(value, Decimal(denominator)), total) for value in raised]
    weights = [max(math.floor(value), 1 if size else 0) for value, size in zip(exact, sizes, strict=True)]
    by_size = sorted(range(len(sizes)), key=lambda i: sizes[i], reverse=True)
    by_remainder = sorted(by_size, key=lambda i: weights[i] - exact[i])
    missing = denominator - sum(weights)
    for i in [i for i in by_remainder if weights[i]][: max(missing, 0)]:
        weights[i] += 1
    for _ in range(-missing):
        # Shares raised to 1 come off the largest ones: of equal weights the smaller size, so that none overtakes.
        weights[min(range(len(weights)), key=lambda i: (-weights[i], sizes[i]))] -= 1
    return weights


def sizes_of(sources: Sequence[NamedSource], tokens: Sequence[int]) -> list[Decimal]:
    """q_i: the weights where given, else the tokens.

    Errors: `ConfigError` where only some have a weight, or all are zero; `InputError` for a weighted source without
    documents.
    """
    refuse_some_weights(sources)
    sizes = [Decimal(n) if s.weight is None else s.weight for s, n in zip(sources, tokens, strict=True)]
    empty = [s.name for s, size, n in zip(sources, sizes, tokens, strict=True) if not n and (size or s.weight is None)]
    if empty:
        raise InputError(f"source {empty[0]!r} has no documents: leave it out, or give it weight 0")
    if not any(sizes):
        raise ConfigError("all weights are 0: give at least one source a weight above 0")
    return sizes


def refuse_mismatch(names: Sequence[str], loaded: Sequence[LoadedManifest[TokensManifest]]) -> None:
    """All sources must speak the same vocabulary."""
    speech = [
        {
            "tokenizer": item.manifest.tokenizer_sha256[:12],
            "dtype": item.manifest.dtype,
            "vocab_size": item.manifest.vocab_size,
            "end_of_document_id": item.manifest.end_of_document_id,
            "beginning_of_document_id": item.manifest.beginning_of_document_id,
        }
        for item in loaded
    ]
    for name, own in zip(names, speech, strict=True):
        for what, value in own.items():
            if value != speech[0][what]:
                raise InputError(
                    f"source {name!r} has {what} {value}, but {names[0]!r} has {speech[0][what]}: "
                    "tokenize them with the same tokenizer and settings"
                )


def build(config: MixConfig, inputs: Sequence[str], name: str | None) -> MixStage:
    """The stage for `NAME=DIR[:WEIGHT]` arguments; their order does not count."""
    sources = sorted((parse_source(argument) for argument in inputs), key=lambda source: source.name)
    names = [source.name for source in sources]
    if not sources:
        raise ConfigError("no source given: NAME=DIR, or more")
    refuse_repeated_names(sources)
    loaded = [load_manifest(source.path, TokensManifest) for source in sources]
    _refuse_same_dataset(names, loaded)
    refuse_mismatch(names, loaded)
    for source, item in zip(sources, loaded, strict=True):
        if item.manifest.loss_mask:
            _LOG.warning("source %r: has loss masks, which training does not use: every token counts", source.name)
    weights = solve_weights(sizes_of(sources, [m.manifest.counts.tokens for m in loaded]), config.temperature)
    solved = SolvedMixConfig(**config.model_dump(), weights=dict(zip(names, weights, strict=True)))
    return MixStage(config=solved, inputs=Inputs(manifests=tuple(loaded)), dataset_name=name or "+".join(names))


def _refuse_same_dataset(names: Sequence[str], loaded: Sequence[LoadedManifest[TokensManifest]]) -> None:
    first: dict[str, str] = {}
    for name, item in zip(names, loaded, strict=True):
        other = first.setdefault(item.manifest.digest, name)
        if other != name:
            raise ConfigError(f"sources {other!r} and {name!r} are the same dataset: name it once, with both weights")


STAGE = StageType(config=MixConfig, build=build, suffix=".json", named_inputs=True)
