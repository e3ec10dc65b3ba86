"""What `prep verify` checks of a packed dataset beyond its checksums: whether the shards hold what they must."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tokenmill_core import storage
from tokenmill_core.errors import TokenmillError
from tokenmill_core.manifest import PackedManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_core.progress import ProgressBar
from tokenmill_core.verify import Checked
from tokenmill_shards.formats.mmididx import Shard
from tokenmill_shards.formats.places import MASK_SUFFIX
from tokenmill_shards.packing.account import labels_of_sources
from tokenmill_shards.packing.pieces import PADDING, PIECES_SUFFIX, read_pieces


def check_packed(loaded: LoadedManifest[PackedManifest], checked: Checked) -> Iterator[str]:
    """Each problem of the shards: index against data and pieces, ids, padding, loss masks, what each source gave."""
    manifest = loaded.manifest
    if not storage.is_local(loaded.url):
        checked.notes.append(
            f"{loaded.url}: its tokens were not looked at, as they lie elsewhere; copy the folder here"
        )
        return
    with ProgressBar(f"checking sequences of {manifest.name}", manifest.num_samples) as bar:
        for number, samples in enumerate(manifest.shard_samples):
            try:
                yield from _shard_problems(loaded, number)
            except TokenmillError as error:
                yield str(error)
            checked.tokens += samples * (manifest.sequence_length + 1)
            bar.advance(samples)


def _shard_problems(loaded: LoadedManifest[PackedManifest], number: int) -> Iterator[str]:
    manifest, width = loaded.manifest, loaded.manifest.sequence_length + 1
    prefix = storage.local_path(loaded.file_url(manifest.shards[number]))
    shard, pieces = Shard(prefix), read_pieces(Path(f"{prefix}{PIECES_SUFFIX}"), width)
    samples = manifest.shard_samples[number]
    if not np.array_equal(shard.document_offsets, np.arange(samples + 1) * width):
        yield f"{prefix}.idx: not {samples:,} sequences of {width} tokens; pack again"
        return
    if not np.array_equal(shard.lengths, pieces.num_tokens):
        yield f"{prefix}{PIECES_SUFFIX}: its pieces are not those of the index; pack again"
        return
    if not 0 <= shard.tokens.min() <= shard.tokens.max() < manifest.vocab_size:
        yield f"{prefix}: ids from {shard.tokens.min()} to {shard.tokens.max()} of {manifest.vocab_size:,}; pack again"
    is_padding = np.repeat(pieces.source == PADDING, pieces.num_tokens)
    if (shard.tokens[is_padding] != manifest.padding_id).any():
        yield f"{prefix}: padding that is not the id {manifest.padding_id}; pack again"
    labels = tuple(labels_of_sources(pieces, len(manifest.sources)).tolist())
    if labels != manifest.shard_source_tokens[number]:
        yield f"{prefix}: its sources give {labels} labels, not {manifest.shard_source_tokens[number]}; pack again"
    if manifest.loss_mask:
        mask = np.fromfile(f"{prefix}{MASK_SUFFIX}", np.uint8)
        if mask.size != shard.tokens.size or mask.max() > 1 or mask[is_padding].any():
            yield f"{prefix}{MASK_SUFFIX}: not a 0 or 1 for each token, and 0 for padding; pack again"
