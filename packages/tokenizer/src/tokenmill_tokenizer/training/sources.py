"""The sources that a tokenizer is trained on, and how much of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.manifest import DocumentsManifest
from tokenmill_core.named_sources import (
    NamedSource,
    is_named,
    parse_source,
    refuse_repeated_names,
    refuse_some_weights,
)
from tokenmill_core.readers import Format
from tokenmill_core.stage import Inputs, resolve_inputs


@dataclass(frozen=True)
class TrainingSource:
    """Inputs that are weighed, sampled and reported as one."""

    name: str
    inputs: Inputs
    weight: Decimal | None
    """Share of the sample's bytes, relative to the other sources' weights; none: by their sizes."""


def find_sources(arguments: Sequence[str], format: Format | None) -> list[TrainingSource]:
    """A source for each `NAME=PATH[:WEIGHT]` or plain INPUT, in the order of their names.

    Errors: `ConfigError` for names given twice, or weights for some alone; `InputError` for what is no input.
    """
    named = [parse_source(argument) for argument in arguments if is_named(argument)]
    plain = [argument for argument in arguments if not is_named(argument)]
    refuse_some_weights([*named, *(NamedSource(argument, argument, None) for argument in plain)])
    inputs = [resolve_inputs([source.path], DocumentsManifest, format=format) for source in named]
    sources = [TrainingSource(source.name, found, source.weight) for source, found in zip(named, inputs, strict=True)]
    if plain:
        together = resolve_inputs(plain, DocumentsManifest, format=format)
        each = [Inputs(raw=(group,)) for group in together.raw]
        each += [Inputs(manifests=(loaded,)) for loaded in together.manifests]
        sources += [TrainingSource(one.default_name(), one, None) for one in each]
    refuse_repeated_names([NamedSource(source.name, "", None) for source in sources])
    if all(source.weight == 0 for source in sources):
        raise ConfigError("all weights are 0: give at least one source a weight above 0")
    return sorted((source for source in sources if source.weight != 0), key=lambda source: source.name)


def join_inputs(sources: Sequence[TrainingSource]) -> Inputs:
    """The inputs of all sources.

    Errors: `InputError` where two sources read the same: its documents would count for both.
    """
    raw = tuple(group for source in sources for group in source.inputs.raw)
    manifests = tuple(loaded for source in sources for loaded in source.inputs.manifests)
    seen: dict[str, str] = {}
    for source in sources:
        for reference in source.inputs.refs("."):
            other = seen.setdefault(reference.digest, source.name)
            if other != source.name:
                raise InputError(f"sources {other!r} and {source.name!r} read the same data: name it once")
    return Inputs(raw=raw, manifests=manifests)


def share_out(
    sizes: Mapping[str, int], weights: Mapping[str, Decimal | None], sample_bytes: int | None
) -> dict[str, int]:
    """The share of each source in bytes of text.

    Without weights a source's share is its size. Without `sample_bytes` the sample is as large as the shares allow.
    Errors: `InputError` for a source without text.
    """
    if empty := [name for name, size in sizes.items() if not size]:
        raise InputError(
            f"source {empty[0]!r} has no documents to train on: check it and --text-field, or leave it out"
        )
    shares = {name: Fraction(sizes[name] if weight is None else weight) for name, weight in weights.items()}
    total = sum(shares.values())
    whole = min(sizes[name] / share for name, share in shares.items()) * total
    wanted = whole if sample_bytes is None else Fraction(sample_bytes)
    return {name: int(wanted * share / total) for name, share in shares.items()}
