"""One packed shard: sequences and their pieces, written, read back and checked.

shard-NNNNN.bin            the tokens, L + 1 a sequence
shard-NNNNN.idx            MMIDIDX: a document is a sequence, its sequences are pieces, padding the last
shard-NNNNN.pieces.parquet where each piece came from
shard-NNNNN.loss_mask.bin  a byte a token, where the mixture has loss masks
"""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokenmill_core.errors import VerificationError
from tokenmill_core.manifest import FileEntry
from tokenmill_core.storage import HashingWriter
from tokenmill_shards.formats.mmididx import Shard, bin_path, write_index
from tokenmill_shards.formats.places import MASK_SUFFIX
from tokenmill_shards.packing.fill import Filled
from tokenmill_shards.packing.pieces import PIECES_SUFFIX, Pieces, write_pieces


def write_packed_shard(prefix: Path, filled: Filled, pieces: Pieces, vocab_size: int) -> list[FileEntry]:
    """Write a shard, the index last; its files, paths relative to the prefix's folder.

    Raises:
        VerificationError: an id is outside the vocabulary, or what lies on disk is not what was written.
    """
    tokens = filled.tokens.reshape(-1)
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < vocab_size:
        raise VerificationError(
            f"{prefix}: ids from {tokens.min()} to {tokens.max()}, but the vocabulary has {vocab_size:,}: verify the "
            "token datasets of the mixture, and tokenize again what is damaged"
        )
    files = [_write(bin_path(prefix), tokens, documents=len(filled.tokens), tokens=tokens.size)]
    if filled.mask is not None:
        files.append(_write(_beside(prefix, MASK_SUFFIX), filled.mask.reshape(-1)))
    files.append(write_pieces(_beside(prefix, PIECES_SUFFIX), pieces))
    first_pieces = np.searchsorted(pieces.sequence, np.arange(len(filled.tokens) + 1))
    index = write_index(prefix, tokens.dtype, pieces.num_tokens, first_pieces)
    files.append(FileEntry(path=index.path.name, bytes=index.bytes, sha256=index.sha256))
    _check(prefix, filled, pieces, first_pieces)
    return files


def _write(path: Path, content: NDArray[np.generic], **counts: int) -> FileEntry:
    with HashingWriter(path) as writer:
        writer.write(content.data)
    return FileEntry(path=path.name, bytes=writer.bytes, sha256=writer.sha256, **counts)


def _check(prefix: Path, filled: Filled, pieces: Pieces, first_pieces: NDArray[np.int64]) -> None:
    shard = Shard(prefix)
    same = {
        "tokens": np.array_equal(shard.tokens, filled.tokens.reshape(-1)),
        "lengths of pieces": np.array_equal(shard.lengths, pieces.num_tokens),
        "sequences": np.array_equal(shard.first_sequences, first_pieces),
        "rows of pieces": pq.read_metadata(_beside(prefix, PIECES_SUFFIX)).num_rows == len(pieces.source),
    }
    if filled.mask is not None:
        mask = np.fromfile(_beside(prefix, MASK_SUFFIX), np.uint8)
        same["loss mask"] = np.array_equal(mask, filled.mask.reshape(-1))
    for what, equal in same.items():
        if not equal:
            raise VerificationError(
                f"{prefix}: read back, its {what} are not what was written; check the disk, pack again"
            )


def _beside(prefix: Path, suffix: str) -> Path:
    return prefix.with_name(prefix.name + suffix)
