"""What is worth knowing of a mixture that is not refused: where whole samples pass a bound, what repetition costs.

Bounds are solved in tokens, for a mixture knows no sequence length. An epoch of training is the windows that a source
fills, so that one of few windows has more epochs than it was solved for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from tokenmill_shards.mixing.amounts import amount_for
from tokenmill_shards.mixing.repetition import CHEAP_EPOCHS
from tokenmill_shards.mixing.request import MixSettings, ShareRules
from tokenmill_shards.mixing.stages import stage_rules
from tokenmill_shards.mixture import Mixture

if TYPE_CHECKING:
    from tokenmill_shards.mixing.figures import SourceFigures, StageFigures


def find_warnings(
    mixture: Mixture, stages: Sequence[StageFigures], total: StageFigures, settings: MixSettings
) -> Iterator[str]:
    """Each warning of a mixture solved by `settings`, of which a run draws `stages`, in all `total`."""
    yield from _without_validation(mixture)
    rules = stage_rules(settings)
    for number, own_rules in enumerate(rules, len(stages) - len(rules)):
        yield from _missed_epochs(mixture, number, stages[number], own_rules)
    for own, windows in zip(total.sources, mixture.num_windows.tolist(), strict=True):
        if own.epochs > CHEAP_EPOCHS and _shows_other(own.samples, windows, Fraction(CHEAP_EPOCHS)):
            yield (
                f"source {own.name!r}: {own.epochs:.2f} epochs; past {CHEAP_EPOCHS}, tokens repeated are worth ever "
                f"less: {own.tokens:,} of them about {own.effective_tokens:,} new ones"
            )


def _without_validation(mixture: Mixture) -> Iterator[str]:
    share = mixture.manifest.validation_share
    for number, source in enumerate(mixture.manifest.sources):
        weighted = any(stage.weights[number] for stage in mixture.manifest.stages)
        if share and weighted and not source.held_out_documents:
            yield (
                f"source {source.name!r}: a validation share of {share:g} holds out none of its "
                f"documents ({source.documents:,}), so it has no validation set of its own; that takes about "
                f"{math.ceil(1 / share):,}"
            )


def _missed_epochs(mixture: Mixture, number: int, stage: StageFigures, rules: ShareRules) -> Iterator[str]:
    """Sources of a stage whose epochs are not the fixed ones, or above the most that they may have."""
    where = f" in {stage.name!r}" if len(mixture.stages) > 1 else ""
    rows = zip(stage.sources, mixture.manifest.stages[number].weights, mixture.num_windows.tolist(), strict=True)
    for place, (own, weight, windows) in enumerate(rows):
        if weight and (missed := _missed(own, windows, rules)):
            epochs, bound, words = missed
            unfilled = mixture.manifest.sources[place].training_tokens - windows * mixture.sequence_length - 1
            reason = f": its last {unfilled:,} tokens fill no window" if unfilled and epochs > bound else ""
            yield (
                f"source {own.name!r}{where}: {epochs:.2f} epochs in samples of {mixture.sequence_length}, "
                f"{words} {float(bound):g}{reason}"
            )


def _missed(own: SourceFigures, windows: int, rules: ShareRules) -> tuple[float, Fraction, str] | None:
    """(epochs, the bound that they miss, what they are to it) of a source in a stage."""
    fixed, most = amount_for(own.name, rules.epochs), amount_for(own.name, rules.max_epochs)
    if fixed is not None and _shows_other(own.samples, windows, fixed):
        return own.epochs, fixed, "not its fixed"
    so_far = round(own.epochs_so_far * windows)
    if most is not None and own.epochs_so_far > most and _shows_other(so_far, windows, most):
        return own.epochs_so_far, most, "above its max_epochs"
    return None


def _shows_other(samples: int, windows: int, epochs: Fraction) -> bool:
    """Whether a table of `samples` shows other `epochs`, by more than the one sample to which counts are rounded."""
    return abs(samples - epochs * windows) > 1 and f"{samples / windows:.2f}" != f"{float(epochs):.2f}"
