"""What a mixture draws for a budget of tokens, counted by the order itself: the figures that `prep mix` prints."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.manifest import Frozen
from tokenmill_core.mixture_manifest import MixtureManifest, MixtureSource
from tokenmill_shards.mixing.amounts import MAX_TOKENS, amount_for
from tokenmill_shards.mixing.infeasible import fixed_epochs_differ
from tokenmill_shards.mixing.repetition import effective_tokens
from tokenmill_shards.mixing.request import MixSettings
from tokenmill_shards.mixing.warnings import find_warnings
from tokenmill_shards.mixture import Mixture

DEFAULT_SEQUENCE_LENGTH = 2048


class SourceFigures(Frozen):
    """What a stage, or the whole run, draws from one source."""

    name: str
    share: float
    """Of the samples of the stage or run."""
    samples: int
    tokens: int
    """Samples times the sequence length."""
    epochs: float
    """Samples over the source's windows."""
    epochs_so_far: float
    """The same from the start of training to the end of the stage."""
    effective_tokens: int
    """What all tokens so far are worth, repeated ones less than new ones."""


class StageFigures(Frozen):
    """What one stage, or the whole run, draws."""

    name: str
    first_token: int
    first_sample: int
    samples: int
    tokens: int
    sources: tuple[SourceFigures, ...]


class Figures(Frozen):
    """What a run draws: stage by stage and in total."""

    sequence_length: int
    stages: tuple[StageFigures, ...]
    total: StageFigures
    warnings: tuple[str, ...]


def run_length(settings: MixSettings, tokens: int | None, manifest: MixtureManifest) -> int:
    """Tokens of the run: `tokens`, or what fixed epochs of all sources in the last stage come to, or one pass of these.

    Raises:
        ConfigError: fixed epochs of all of them come to other than `tokens`, or it has more than a run may have.
    """
    last, rules = manifest.stages[-1], settings.stages[-1] if settings.stages else settings
    drawn = [source for source, weight in zip(manifest.sources, last.weights, strict=True) if weight]
    epochs = [amount_for(source.name, rules.epochs) for source in drawn]
    if all(epochs):
        fixed = sum(((e or 0) * source.training_tokens for e, source in zip(epochs, drawn, strict=True)), Fraction(0))
        length = math.ceil(fixed)
        if tokens not in (None, last.first_token + length):
            raise fixed_epochs_differ(last.first_token, length, tokens or 0)
    else:
        length = sum(source.training_tokens for source in drawn)
    end = tokens or last.first_token + length
    if end > MAX_TOKENS:
        raise ConfigError(f"training would end after {end:,} tokens, above 10^18: give fewer epochs, or --tokens")
    return end


def shortest_source(manifest: MixtureManifest) -> MixtureSource:
    """Of the sources that are drawn from, the one with the fewest tokens to train on."""
    drawn = [
        source
        for number, source in enumerate(manifest.sources)
        if any(stage.weights[number] for stage in manifest.stages)
    ]
    return min(drawn, key=lambda source: source.training_tokens)


def fitting_length(manifest: MixtureManifest, sequence_length: int) -> int:
    """`sequence_length`, or less where a source that is drawn from has not one window of it.

    Raises:
        InputError: one has not even a window of one token.
    """
    shortest = shortest_source(manifest)
    if shortest.training_tokens < 2:
        raise InputError(
            f"source {shortest.name!r} has {shortest.training_tokens} tokens to train on, and a sample needs 2 at "
            "least: give it more data, or weight 0"
        )
    return min(sequence_length, shortest.training_tokens - 1)


def figures(
    manifest: MixtureManifest, tokens: int, sequence_length: int, settings: MixSettings | None = None
) -> Figures:
    """What a run of `tokens` draws in samples of `sequence_length`: all that begin before it ends.

    Warnings compare it with the bounds of `settings`, those that the mixture was solved by.

    Errors: `InputError` where a source that is drawn from has not one window of that length.
    """
    mixture = Mixture(manifest, sequence_length)
    ends = [stage.first for stage in mixture.stages[1:]] + [-(-tokens // sequence_length)]
    stages = []
    for stage, chained, end in zip(manifest.stages, mixture.stages, ends, strict=True):
        samples = _sources(mixture, mixture.counts(end) - chained.drawn_before, mixture.counts(end), stage.weights)
        stages.append(_stage(stage.name, stage.first_token, chained.first, end, sequence_length, samples))
    counts = mixture.counts(ends[-1])
    total = _stage("total", 0, 0, ends[-1], sequence_length, _sources(mixture, counts, counts, counts.tolist()))
    return Figures(
        sequence_length=sequence_length,
        stages=tuple(stages),
        total=total,
        warnings=tuple(find_warnings(mixture, stages, total, settings or MixSettings())),
    )


def _stage(
    name: str, first_token: int, first: int, end: int, sequence_length: int, sources: tuple[SourceFigures, ...]
) -> StageFigures:
    samples = end - first
    return StageFigures(
        name=name,
        first_token=first_token,
        first_sample=first,
        samples=samples,
        tokens=samples * sequence_length,
        sources=sources,
    )


def _sources(
    mixture: Mixture, samples: NDArray[np.int64], so_far: NDArray[np.int64], weights: Sequence[int]
) -> tuple[SourceFigures, ...]:
    length, windows = mixture.sequence_length, np.maximum(mixture.num_windows, 1)
    rows = zip(mixture.manifest.sources, samples.tolist(), so_far.tolist(), weights, windows.tolist(), strict=True)
    return tuple(
        SourceFigures(
            name=source.name,
            share=weight / sum(weights),
            samples=own,
            tokens=own * length,
            epochs=own / per_epoch,
            epochs_so_far=all_so_far / per_epoch,
            effective_tokens=effective_tokens(all_so_far * length, source.training_tokens),
        )
        for source, own, all_so_far, weight, per_epoch in rows
    )
