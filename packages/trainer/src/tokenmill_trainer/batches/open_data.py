"""What a run trains on: the mixture or the packed dataset that its settings name."""

from contextlib import suppress
from typing import TypedDict

from tokenmill_core.errors import ConfigError, InputError, ManifestError
from tokenmill_core.manifest import Kind
from tokenmill_core.manifest_io import LoadedManifest, load_input
from tokenmill_shards.open_samples import SamplesManifest, load_samples_manifest, open_samples
from tokenmill_shards.packing.reader import PackedReader
from tokenmill_shards.reading.cache import FileCache
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_shards.reading.samples import SampleReader
from tokenmill_trainer.batches.data import Documents
from tokenmill_trainer.config import RunConfig, fitted
from tokenmill_trainer.world import World


def open_data(config: RunConfig, world: World) -> tuple[LoadedManifest[SamplesManifest], MixtureReader | PackedReader]:
    """The manifest of the mixture or packed dataset, and its reader. Collective: an error of one rank is raised on all.

    Errors: `ConfigError` where none is named, or settings do not fit it; `ManifestError`, `VerificationError` and
    `InputError` where it is not what it says, or too short.
    """
    if not config.data.mixture:
        raise ConfigError("data.mixture: no mixture is given; name one with --mixture or in the config file")

    def open_here() -> tuple[LoadedManifest[SamplesManifest], MixtureReader | PackedReader]:
        loaded = load_samples_manifest(config.data.mixture)
        length = fitted(config, loaded.manifest).data.sequence_length
        return loaded, open_samples(config.data.mixture, length, verify=config.data.verify, **_ways(config))

    return world.on_each(open_here)


def open_validation(
    config: RunConfig, loaded: LoadedManifest[SamplesManifest], reader: SampleReader
) -> MixtureReader | None:
    """Where held-out samples are read: the mixture itself, or the one that a packed dataset was made from.

    None where that one is not found, or none is asked for.
    """
    if isinstance(reader, MixtureReader):
        return reader
    number = next((i for i, ref in enumerate(loaded.manifest.inputs) if ref.kind is Kind.MIXTURE), None)
    if number is None or not config.validation.interval:
        return None
    with suppress(ManifestError):
        mixture = load_input(loaded, number)
        return MixtureReader.open(mixture.url, reader.sequence_length, verify=config.data.verify, **_ways(config))
    return None


def open_traced(config: RunConfig, path: str) -> MixtureReader | PackedReader:
    """The samples of a run as it was trained on them; `path` says where the data lies now."""
    return open_samples(path, config.data.sequence_length, **_ways(config))


class _Ways(TypedDict):
    documents: bool
    cache: FileCache


def _ways(config: RunConfig) -> _Ways:
    """How samples are read, whatever they are read from."""
    return {
        "documents": config.data.documents is Documents.SEPARATE,
        "cache": FileCache.open(config.data.cache, config.data.cache_size),
    }


def check_enough(reader: SampleReader, consumed_samples: int, samples_left: int) -> None:
    """`samples_left` more samples can be read after `consumed_samples`, or `InputError` with have and need."""
    need = consumed_samples + samples_left
    if reader.num_samples is not None and reader.num_samples < need:
        raise InputError(
            f"data.mixture: the packed dataset has {reader.num_samples:,} sequences, but the run needs {need:,} "
            f"({consumed_samples:,} are consumed, and {samples_left:,} are still to come); pack more tokens, or lower "
            "training.steps"
        )
