"""What `prep verify` checks of a mixture: its sources, that it is what was asked for, and that each comes to its share.

The datasets themselves are verified beside it.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill_core import storage
from tokenmill_core.errors import TokenmillError
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, load_input
from tokenmill_core.mixture_manifest import MixtureManifest, MixtureSource
from tokenmill_core.progress import ProgressBar
from tokenmill_core.verify import Checked
from tokenmill_shards.audit.request_checks import Dataset, request_problems
from tokenmill_shards.mixing.amounts import rounded_down, rounded_up
from tokenmill_shards.mixing.held_out import count_shards
from tokenmill_shards.mixture import Mixture
from tokenmill_shards.order.sample_order import BLOCK_SIZE
from tokenmill_shards.reading.store import shard_tokens

NUM_SAMPLES = 1_000_000
"""Samples of each stage that are drawn to see how near its sources come to their shares."""
SPEECH = ("tokenizer_sha256", "dtype", "vocab_size", "end_of_document_id", "beginning_of_document_id")
"""What all sources have in common with the mixture."""


def check_mixture(loaded: LoadedManifest[MixtureManifest], checked: Checked) -> Iterator[str]:
    """Each problem of the sources against their datasets, of all against its config, of samples against weights."""
    manifest, datasets = loaded.manifest, list[Dataset]()
    with ProgressBar(f"checking sources of {manifest.name}", sum(len(s.shard_tokens) for s in manifest.sources)) as bar:
        for source in manifest.sources:
            yield from _source_problems(loaded, source, datasets, checked)
            bar.advance(len(source.shard_tokens))
    if len(datasets) == len(manifest.sources):  # else what is missing is named already
        yield from request_problems(loaded, datasets, checked)
    yield from _share_problems(loaded, checked)


def _source_problems(
    loaded: LoadedManifest[MixtureManifest], source: MixtureSource, datasets: list[Dataset], checked: Checked
) -> Iterator[str]:
    """The problems of one source; what is known of its dataset is added to `datasets`."""
    try:
        dataset: LoadedManifest[Any] = load_input(loaded, source.input)
    except TokenmillError:
        return  # named where the datasets are verified
    tokens = dataset.manifest
    if not isinstance(tokens, TokensManifest):
        yield f"{loaded.url}: source {source.name!r} is a {tokens.kind} dataset, but a tokens dataset is needed"
        return
    datasets.append(Dataset(dataset.folder, tokens.counts, tokens.padded_vocab_size))
    pairs = {name: (getattr(loaded.manifest, name), getattr(tokens, name)) for name in SPEECH}
    pairs["documents"] = (source.documents, tokens.counts.documents)
    pairs["loss_mask"] = (source.loss_mask, tokens.loss_mask)
    pairs["shard_tokens"] = (list(source.shard_tokens), list(shard_tokens(tokens)))
    for field, (have, need) in pairs.items():
        if have != need:
            yield _differs(loaded, source, field, have, f"{dataset.url} has {_shown(need)}")
    yield from _held_out_problems(loaded, source, dataset, checked)


def _held_out_problems(
    loaded: LoadedManifest[MixtureManifest],
    source: MixtureSource,
    dataset: LoadedManifest[TokensManifest],
    checked: Checked,
) -> Iterator[str]:
    share = loaded.manifest.validation_share
    if share and not storage.is_local(dataset.url):
        checked.notes.append(f"{dataset.url}: what is held out was not counted again, as its shards lie elsewhere")
        return
    try:
        counts = count_shards(dataset, share, range(len(dataset.manifest.shards) if share else 0))
    except TokenmillError as error:
        yield str(error)
        return
    for field, need in (("held_out_documents", counts.documents), ("held_out_tokens", list(counts.shard_tokens))):
        have = getattr(source, field)
        have = list(have) if isinstance(have, tuple) else have
        if have != need:
            yield _differs(loaded, source, field, have, f"a share of {share:g} gives {_shown(need)}")


def _differs(
    loaded: LoadedManifest[MixtureManifest], source: MixtureSource, field: str, have: object, need: str
) -> str:
    return f"{loaded.url}: source {source.name!r}: {field} is {_shown(have)}, but {need}; mix again"


def _shown(value: object) -> str:
    """A value in a message; of a long list the sum."""
    if isinstance(value, list):
        return f"{sum(value):,} in {len(value)} shards" if len(value) > 8 else f"{value}"
    return f"{value[:12]}…" if isinstance(value, str) and len(value) > 12 else f"{value}"


def _share_problems(loaded: LoadedManifest[MixtureManifest], checked: Checked) -> Iterator[str]:
    """How far counts are off the weights, in samples: over the beginning of each stage, and where it ends."""
    try:
        mixture = Mixture(loaded.manifest, 1)  # shares are the same at any sequence length
    except TokenmillError as error:
        yield f"{loaded.url}: {error}"
        return
    drawn, worst, most = 0, 0.0, 0.0
    for number, stage in enumerate(loaded.manifest.stages):
        num_samples, deviation = _drawn_deviation(mixture, number)
        deviation = max(deviation, _end_deviation(mixture, number))
        bound = deviation_bound(stage.weights)
        drawn, worst, most = drawn + num_samples, max(worst, deviation), max(most, bound)
        if deviation >= bound:
            yield (
                f"{loaded.url}: stages.{number} ({stage.name!r}): a source is {deviation:.3f} samples off its weight, "
                f"but must be within {bound:.3f}; install Tokenmill again and report this"
            )
    number = len(loaded.manifest.stages) - 1
    boundaries = f"{number} stage {'boundary' if number == 1 else 'boundaries'}"
    checked.notes.append(
        f"{loaded.url}: over {drawn:,} samples and {boundaries} each source is within "
        f"{rounded_down(Fraction(worst))} samples of its share (bound {rounded_up(Fraction(most))})"
    )


def deviation_bound(weights: tuple[int, ...]) -> float:
    """What the count of no source reaches, in samples off its weight, by the rules of `order.sample_order`."""
    rarest = min(weight for weight in weights if weight)
    return 1.0 if rarest * BLOCK_SIZE >= sum(weights) else 2 + 1 / BLOCK_SIZE


def largest_deviation(sources: NDArray[np.int32], numbers: NDArray[np.int64], weights: NDArray[np.int64]) -> float:
    """The largest |count − n · share| of a source that is drawn, over every n up to all samples.

    Sample i is of `sources[i]`, its `numbers[i]`-th from 0. A count is furthest off right before a draw or after it.
    In whole numbers of 64 bits: samples times the sum of `weights` must stay below 2^62.
    """
    places, own, total = np.arange(sources.size), weights[sources], int(weights.sum())
    before = numbers * total - places * own
    after = before + total - own
    return max((int(np.abs(off).max()) for off in (before, after) if off.size), default=0) / total


def _drawn_deviation(mixture: Mixture, number: int) -> tuple[int, float]:
    """(samples drawn from the beginning of a stage, how far a source was off its weight at worst among them)."""
    weights = np.array(mixture.manifest.stages[number].weights, np.int64)
    stage, length = mixture.stages[number], _length(mixture, number)
    num_samples = min(NUM_SAMPLES, (1 << 62) // int(weights.sum()), NUM_SAMPLES if length is None else length)
    sources, numbers = mixture.occurrences(stage.first + np.arange(num_samples))
    return num_samples, largest_deviation(sources, numbers - stage.drawn_before[sources], weights)


def _end_deviation(mixture: Mixture, number: int) -> float:
    """How far a source is off its weight at the end of a stage, or of what is drawn of an endless one."""
    stage, length = mixture.stages[number], _length(mixture, number)
    length = NUM_SAMPLES if length is None else length
    drawn = mixture.counts(stage.first + length) - stage.drawn_before
    counts: list[int] = drawn.tolist()
    weights, total = mixture.manifest.stages[number].weights, mixture.manifest.denominator
    return max(abs(n * total - length * weight) for n, weight in zip(counts, weights, strict=True)) / total


def _length(mixture: Mixture, number: int) -> int | None:
    """Samples of a stage; none: the last one is endless."""
    if number + 1 == len(mixture.stages):
        return None
    return mixture.stages[number + 1].first - mixture.stages[number].first
