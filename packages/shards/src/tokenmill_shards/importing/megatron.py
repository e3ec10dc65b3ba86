"""Megatron's tokens: `x.bin` with `x.idx`, the format that our own shards have."""

from pathlib import Path

from tokenmill_shards.formats.mmididx import Shard, idx_path
from tokenmill_shards.importing.token_file import Reading, TokenFile

SUFFIX = ".bin"


def companions(path: Path) -> list[Path]:
    """Files that lie beside `path` and say more of it."""
    return [idx_path(_prefix(path))]


def open_file(path: Path, reading: Reading) -> TokenFile:
    """The tokens of `path`. Sequences of one document become one."""
    shard = Shard(_prefix(path))
    return TokenFile(path, shard.tokens, shard.document_offsets[1:])


def _prefix(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(SUFFIX))
