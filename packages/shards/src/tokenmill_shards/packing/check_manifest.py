"""What `prep verify` checks of the manifest of a packed dataset against itself: lists, files, counts and settings."""

import re
from collections.abc import Iterator
from itertools import pairwise

from pydantic import ValidationError

from tokenmill_core.manifest import TOKENIZER_NAME, Kind
from tokenmill_core.manifest_io import LoadedManifest, describe_validation_error
from tokenmill_core.mixture_manifest import PackedManifest
from tokenmill_shards.formats.places import MASK_SUFFIX
from tokenmill_shards.packing.pack import Method, PackConfig
from tokenmill_shards.packing.pieces import PIECES_SUFFIX


def list_problems(loaded: LoadedManifest[PackedManifest]) -> Iterator[str]:
    """Lists that do not belong together: where there are some, nothing else can be looked at."""
    manifest = loaded.manifest
    lengths = {name: len(getattr(manifest, name)) for name in ("shards", "shard_samples", "shard_source_tokens")}
    if len(set(lengths.values())) > 1:
        yield f"{loaded.url}: {_shown(lengths)} entries, but each needs one a shard; pack again"
    rows = {"epoch_tokens": len(manifest.epoch_tokens)}
    rows |= {f"shard_source_tokens.{i}": len(row) for i, row in enumerate(manifest.shard_source_tokens)}
    if wrong := {name: length for name, length in rows.items() if length != len(manifest.sources)}:
        yield f"{loaded.url}: {_shown(wrong)} entries, but {len(manifest.sources)} sources; pack again"
    if unnamed := [name for name in manifest.shards if not re.fullmatch("shard-[0-9]{5,}", name)]:
        yield f"{loaded.url}: shards: {unnamed[0]!r} is no name that packing gives; pack again"
    elif any(before >= after for before, after in pairwise(map(shard_number, manifest.shards))):
        yield f"{loaded.url}: shards: they do not stand in the order they were packed; pack again"


def shard_number(name: str) -> int:
    """The number of the task that packed the shard `name`."""
    return int(name.removeprefix("shard-"))


def shard_files(manifest: PackedManifest, name: str) -> list[str]:
    """The files that the shard `name` must have."""
    masks = [MASK_SUFFIX] if manifest.loss_mask else []
    return [name + suffix for suffix in (".bin", ".idx", PIECES_SUFFIX, *masks)]


def manifest_problems(loaded: LoadedManifest[PackedManifest]) -> Iterator[str]:
    """Each thing that the manifest says twice, and not alike."""
    yield from _file_problems(loaded)
    yield from _setting_problems(loaded)
    manifest = loaded.manifest
    tokens = manifest.num_samples * (manifest.sequence_length + 1)
    for field, have, need in (
        ("counts.tokens", manifest.counts.tokens, tokens),
        ("notes.sequences", manifest.notes.get("sequences", 0), manifest.num_samples),
    ):
        if have != need:
            yield f"{loaded.url}: {field} is {have:,}, but its shards have {need:,}; pack again"
    if [reference.kind for reference in manifest.inputs] != [Kind.MIXTURE]:
        kinds = ", ".join(reference.kind for reference in manifest.inputs) or "none"
        yield f"{loaded.url}: inputs are {kinds}, but it needs one mixture; pack again"


def _file_problems(loaded: LoadedManifest[PackedManifest]) -> Iterator[str]:
    manifest = loaded.manifest
    entries = {entry.path: entry for entry in manifest.files}
    for name, samples in zip(manifest.shards, manifest.shard_samples, strict=True):
        for path in shard_files(manifest, name):
            if path not in entries:
                yield f"{loaded.url}: it names the shard {name}, but lists no file {path}; pack again"
        tokens = entries.get(f"{name}.bin")
        if tokens is not None and tokens.documents != samples:
            yield f"{loaded.url}: {tokens.path} has {tokens.documents} sequences, not {samples:,}; pack again"
    needed = {path for name in manifest.shards for path in shard_files(manifest, name)}
    for path in entries:
        if path.startswith("shard-") and path not in needed:
            yield f"{loaded.url}: it lists the file {path}, but names no shard that has one; pack again"
    tokenizer = entries.get(TOKENIZER_NAME)
    if tokenizer is not None and tokenizer.sha256 != manifest.tokenizer_sha256:
        yield (
            f"{loaded.url}: tokenizer_sha256 is {manifest.tokenizer_sha256[:12]}…, but its {TOKENIZER_NAME} has "
            f"{tokenizer.sha256[:12]}…; pack again"
        )


def _setting_problems(loaded: LoadedManifest[PackedManifest]) -> Iterator[str]:
    manifest = loaded.manifest
    try:
        config = PackConfig.model_validate(manifest.config)
    except ValidationError as error:
        yield f"{loaded.url}: config: {describe_validation_error(error)}; pack again"
        return
    pairs = {
        "method": (manifest.method, config.method.value),
        "sequence_length": (manifest.sequence_length, config.sequence_length),
    }
    if config.method is Method.CONCAT:
        pairs["sequences"] = (manifest.num_samples, config.num_samples)
    for what, (have, need) in pairs.items():
        if have != need:
            yield f"{loaded.url}: {what} {have}, but its config asks for {need}; pack again"


def _shown(lengths: dict[str, int]) -> str:
    return ", ".join(f"{name} has {length}" for name, length in lengths.items())
