"""The layouts of token files that can be imported, by name."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from tokenmill_shards.importing import datatrove, llmc, megatron, olmo
from tokenmill_shards.importing.token_file import Reading, TokenFile


class TokenFormat(StrEnum):
    """Who wrote the files."""

    DATATROVE = "datatrove"
    OLMO = "olmo"
    LLMC = "llmc"
    MEGATRON = "megatron"


class Layout(NamedTuple):
    """How the files of one tool lie and are read."""

    suffix: str
    """Of the files with tokens."""
    companions: Callable[[Path], list[Path]]
    """Files that may lie beside one and say more of it."""
    open_file: Callable[[Path, Reading], TokenFile]
    end_opens: bool = False
    """Whether the end-of-document token stands before each document instead of behind it."""


LAYOUTS = {
    TokenFormat.DATATROVE: Layout(datatrove.SUFFIX, datatrove.companions, datatrove.open_file),
    TokenFormat.OLMO: Layout(olmo.SUFFIX, olmo.companions, olmo.open_file),
    TokenFormat.LLMC: Layout(llmc.SUFFIX, llmc.companions, llmc.open_file, end_opens=True),
    TokenFormat.MEGATRON: Layout(megatron.SUFFIX, megatron.companions, megatron.open_file),
}
