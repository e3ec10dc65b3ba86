"""What a run can be fed with, a mixture or a packed dataset: told apart by the manifest."""

from tokenmill_core.errors import InputError, ManifestError
from tokenmill_core.manifest_io import LoadedManifest, load_manifest
from tokenmill_core.mixture_manifest import MixtureManifest, PackedManifest
from tokenmill_shards.packing.reader import PackedReader
from tokenmill_shards.reading.cache import FileCache
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_shards.reading.store import Verify

SamplesManifest = MixtureManifest | PackedManifest


def load_samples_manifest(path: str) -> LoadedManifest[SamplesManifest]:
    """The manifest of the mixture or packed dataset at `path`, or `ManifestError` where it is of another kind."""
    loaded = load_manifest(path)
    if not isinstance(loaded.manifest, MixtureManifest | PackedManifest):
        raise ManifestError(
            f"{loaded.url}: this is a {loaded.manifest.kind} manifest, but samples come from a mixture or packed one: "
            "make one with `prep mix` or `prep pack`"
        )
    return LoadedManifest(loaded.url, loaded.manifest)


def open_samples(
    path: str,
    sequence_length: int | None,
    *,
    verify: Verify | str = Verify.AUTO,
    documents: bool = False,
    cache: FileCache | None = None,
) -> MixtureReader | PackedReader:
    """The samples of the mixture or packed dataset at `path`.

    A packed dataset brings its sequence length; another one, or none for a mixture, is an `InputError`.
    """
    manifest = load_samples_manifest(path).manifest
    if isinstance(manifest, PackedManifest):
        if sequence_length not in (None, manifest.sequence_length):
            raise InputError(
                f"{path}: packed with sequence length {manifest.sequence_length}, but {sequence_length} is asked for; "
                "leave it out to take it over, or pack again"
            )
        return PackedReader.open(path, verify=verify, documents=documents, cache=cache)
    if sequence_length is None:
        raise InputError(f"{path}: a mixture has samples of any sequence length; say which, such as 2048")
    return MixtureReader.open(path, sequence_length, verify=verify, documents=documents, cache=cache)
