"""llm.c's tokens: `x.bin`, 256 int32 of header (magic, version, number of tokens), then the tokens."""

from pathlib import Path

from tokenmill_core.errors import InputError
from tokenmill_shards.formats.mmididx import open_bytes
from tokenmill_shards.importing.token_file import DTYPES, Reading, TokenFile, map_tokens, split_before

SUFFIX = ".bin"
HEADER_BYTES = 1024
_DTYPES = {(20240520, 1): DTYPES["uint16"], (20240801, 7): DTYPES["uint32"]}
"""Type of the tokens by (magic, version): GPT-2's, and Llama 3's."""


def companions(path: Path) -> list[Path]:
    """Files that may lie beside `path` and say more of it: none."""
    return []


def open_file(path: Path, reading: Reading) -> TokenFile:
    """The tokens of `path`. What ends a text elsewhere opens it here."""
    header = open_bytes(path)[:HEADER_BYTES]
    if header.size < HEADER_BYTES:
        raise InputError(f"{path}: {header.size:,} bytes, llm.c's header alone has {HEADER_BYTES:,}; restore the file")
    magic, version, num_tokens = header.view("<i4")[:3].tolist()
    dtype = _DTYPES.get((magic, version))
    if dtype is None:
        known = " or ".join(f"{number} and {version}" for number, version in _DTYPES)
        raise InputError(f"{path}: begins with {magic} and {version}, llm.c's token files with {known}")
    tokens = map_tokens(path, dtype, HEADER_BYTES)
    if num_tokens != tokens.size:
        raise InputError(
            f"{path}: its header says {num_tokens:,} tokens, {tokens.size:,} follow; it was cut short: restore the file"
        )
    return TokenFile(path, tokens, split_before(path, tokens, reading.end_id), HEADER_BYTES)
