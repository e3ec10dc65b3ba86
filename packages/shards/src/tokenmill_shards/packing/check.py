"""What `prep verify` checks of a packed dataset beyond its checksums: whether the shards hold what they must.

the manifest against itself ─▶ each shard against the manifest ─▶ and against the mixture, where that is found
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenmill_core import storage
from tokenmill_core.errors import TokenmillError, VerificationError
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_core.mixture_manifest import PackedManifest
from tokenmill_core.progress import ProgressBar
from tokenmill_core.verify import Checked
from tokenmill_shards.formats.mmididx import Shard
from tokenmill_shards.formats.places import MASK_SUFFIX
from tokenmill_shards.packing.account import labels_of_sources
from tokenmill_shards.packing.check_manifest import list_problems, manifest_problems, shard_files
from tokenmill_shards.packing.check_origin import Origin
from tokenmill_shards.packing.pieces import PADDING, PIECES_SUFFIX, SCHEMA, Pieces, read_pieces

UNKNOWN = -2
"""Stands for the last epoch of a source where a shard before could not be read."""


def check_packed(loaded: LoadedManifest[PackedManifest], checked: Checked) -> Iterator[str]:
    """Each problem of the manifest, of the shards, and of both against the mixture that was packed."""
    mismatched = list(list_problems(loaded))
    yield from mismatched
    if mismatched:
        return
    yield from manifest_problems(loaded)
    if not storage.is_local(loaded.url):
        checked.notes.append(
            f"{loaded.url}: its tokens were not looked at, as they lie elsewhere; copy the folder here"
        )
        return
    origin = Origin.open(loaded, checked)
    if origin is not None:
        yield from origin.manifest_problems()
    yield from _all_shard_problems(loaded, origin, checked)
    if origin is not None:
        yield from origin.note_problems()


def _all_shard_problems(
    loaded: LoadedManifest[PackedManifest], origin: Origin | None, checked: Checked
) -> Iterator[str]:
    manifest = loaded.manifest
    listed = {entry.path for entry in manifest.files}
    epochs = np.full(len(manifest.sources), -1, np.int64)
    with ProgressBar(f"checking sequences of {manifest.name}", manifest.num_samples) as bar:
        for number, samples in enumerate(manifest.shard_samples):
            is_whole = listed.issuperset(shard_files(manifest, manifest.shards[number]))  # else it is named already
            found = _problems_of(loaded, number, epochs, origin) if is_whole else []
            yield from found
            if found or not is_whole:
                epochs[:] = UNKNOWN
            checked.tokens += samples * (manifest.sequence_length + 1) if is_whole else 0
            bar.advance(samples)


def _problems_of(
    loaded: LoadedManifest[PackedManifest], number: int, epochs: NDArray[np.int64], origin: Origin | None
) -> list[str]:
    try:
        return list(_shard_problems(loaded, number, epochs, origin))
    except (TokenmillError, OSError) as error:
        return [str(error)]


def _shard_problems(
    loaded: LoadedManifest[PackedManifest], number: int, epochs: NDArray[np.int64], origin: Origin | None
) -> Iterator[str]:
    manifest, width = loaded.manifest, loaded.manifest.sequence_length + 1
    prefix, samples = storage.local_path(loaded.file_url(manifest.shards[number])), manifest.shard_samples[number]
    shard, pieces = Shard(prefix), _pieces(Path(f"{prefix}{PIECES_SUFFIX}"), width, len(manifest.sources))
    if not np.array_equal(shard.document_offsets, np.arange(samples + 1) * width):
        yield f"{prefix}.idx: not {samples:,} sequences of {width} tokens; pack again"
        return
    if not np.array_equal(shard.lengths, pieces.num_tokens):
        yield f"{prefix}{PIECES_SUFFIX}: its pieces are not those of the index; pack again"
        return
    mask = np.fromfile(f"{prefix}{MASK_SUFFIX}", np.uint8) if manifest.loss_mask else None
    found = [*_content_problems(manifest, number, shard, pieces, mask), *_epoch_problems(prefix, pieces, epochs)]
    yield from found
    if origin is not None and not found:
        yield from origin.shard_problems(number, shard, pieces, mask)


def _content_problems(
    manifest: PackedManifest, number: int, shard: Shard, pieces: Pieces, mask: NDArray[np.uint8] | None
) -> Iterator[str]:
    prefix = shard.prefix
    if shard.dtype != np.dtype(manifest.dtype):
        yield f"{prefix}: tokens of {shard.dtype.name}, not {manifest.dtype}; pack again"
    if not 0 <= shard.tokens.min() <= shard.tokens.max() < manifest.vocab_size:
        yield f"{prefix}: ids from {shard.tokens.min()} to {shard.tokens.max()} of {manifest.vocab_size:,}; pack again"
    is_padding = np.repeat(pieces.source == PADDING, pieces.num_tokens)
    if (shard.tokens[is_padding] != manifest.padding_id).any():
        yield f"{prefix}: padding that is not the id {manifest.padding_id}; pack again"
    labels = tuple(labels_of_sources(pieces, len(manifest.sources)).tolist())
    if labels != manifest.shard_source_tokens[number]:
        yield f"{prefix}: its sources give {labels} labels, not {manifest.shard_source_tokens[number]}; pack again"
    if mask is not None and (mask.size != shard.tokens.size or mask.max() > 1 or mask[is_padding].any()):
        yield f"{prefix}{MASK_SUFFIX}: not a 0 or 1 for each token, and 0 for padding; pack again"


def _pieces(path: Path, width: int, num_sources: int) -> Pieces:
    """The pieces of a shard, none of a source or a place that cannot be."""
    try:
        pieces = read_pieces(path, width)
    except (pa.ArrowException, OSError) as error:
        raise VerificationError(f"{path}: its pieces cannot be read ({error}); pack again") from error
    for name in SCHEMA.names:
        column: NDArray[Any] = getattr(pieces, name)
        lowest, stop = (PADDING, num_sources) if name == "source" else (name == "num_tokens", 1 << 31)
        wrong = np.flatnonzero((column < lowest) | (column >= stop))
        if wrong.size:
            what = f"of {num_sources} sources" if name == "source" else "which cannot be"
            raise VerificationError(
                f"{path}: row {wrong[0] + 1} has {name} {column[wrong[0]]}, {what}; {wrong.size:,} rows are like it; "
                "pack again"
            )
    return pieces


def _epoch_problems(prefix: Path, pieces: Pieces, last: NDArray[np.int64]) -> Iterator[str]:
    """Epochs that do not follow one another; `last` holds those of the shards before: −1 for none, or `UNKNOWN`."""
    held = pieces.source != PADDING
    source, epoch = np.unique(np.stack([pieces.source[held], pieces.epoch[held]]), axis=1)
    before = np.append(-1, epoch[:-1])
    begins = np.flatnonzero(np.diff(source, prepend=-1))
    before[begins] = last[source[begins]]
    wrong = np.flatnonzero((before != UNKNOWN) & ((epoch < before) | (epoch > before + 1)))
    if wrong.size:
        first = wrong[0]
        yield (
            f"{prefix}{PIECES_SUFFIX}: epoch {epoch[first]} of source number {source[first]}, but the epoch before "
            f"it is {before[first]}; pack again"
        )
        return
    np.maximum.at(last, source, epoch)
