"""The texts that a report is about: each INPUT argument is a source, streamed whole or as a sample."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tokenmill_core.documents import Account
from tokenmill_core.errors import ConfigError
from tokenmill_core.manifest import DocumentsManifest
from tokenmill_core.progress import ProgressBar
from tokenmill_core.readers import Piece, ReadOptions, read_pieces
from tokenmill_core.readers.batches import text_bytes
from tokenmill_core.sources import plan_inputs
from tokenmill_core.stage import resolve_inputs
from tokenmill_core.storage import exists, storable
from tokenmill_tokenizer.report.sample import sample_documents

_NAMED = re.compile(r"(?P<name>[^=/]+)=(?P<path>.+)", re.DOTALL)

_PARTS = 8


@dataclass(frozen=True)
class Source:
    """A source by its name, and the pieces of its files."""

    name: str
    pieces: tuple[Piece, ...]


def split_name(argument: str) -> tuple[str | None, str]:
    """(name or none, path) of `NAME=PATH` or a path. What lies there as written is a path, `=` and all."""
    match = _NAMED.fullmatch(argument)
    if match is None or exists(argument):
        return None, argument
    return storable(match["name"]), match["path"]


def open_sources(arguments: Sequence[str], options: ReadOptions) -> list[Source]:
    """A source for each INPUT argument, in their order.

    Errors: `InputError` for what cannot be read; `ConfigError` where two sources have the same name.
    """
    sources = [_open(argument, options) for argument in arguments]
    refuse_twice("source", [source.name for source in sources])
    return sources


def refuse_twice(what: str, names: Sequence[str]) -> None:
    """Refuse names that are given to two things."""
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two {what}s are called {name!r}: give each a name of its own, as NAME=PATH")


def _open(argument: str, options: ReadOptions) -> Source:
    name, path = split_name(argument)
    inputs = resolve_inputs([path], DocumentsManifest, format=options.format, hashing=False)
    return Source(name=name or inputs.default_name(), pieces=tuple(plan_inputs(inputs, options)))


def read_source(source: Source, options: ReadOptions, sample_bytes: int, account: Account) -> Iterator[pa.RecordBatch]:
    """Batches of the documents of `source`: a sample of at most `sample_bytes` of text, or with 0 all of them."""
    if not sample_bytes:
        yield from _read(source, options, account)
        return
    batches = list(sample_documents(_read(source, options, account), sample_bytes))
    with ProgressBar(f"measuring {source.name}", sum(map(text_bytes, batches))) as bar:
        for part in (part for batch in batches for part in _parts(batch)):
            yield part
            bar.advance(text_bytes(part))


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """`batch` in a few slices, so that progress shows with slow encoders too."""
    rows = -(-batch.num_rows // _PARTS)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _read(source: Source, options: ReadOptions, account: Account) -> Iterator[pa.RecordBatch]:
    with ProgressBar(f"reading {source.name}", sum(piece.bytes for piece in source.pieces)) as bar:
        yield from read_pieces(_advancing(source.pieces, bar), options, account)


def _advancing(pieces: Sequence[Piece], bar: ProgressBar) -> Iterator[Piece]:
    """Each piece counts when the next is asked for."""
    for piece in pieces:
        yield piece
        bar.advance(piece.bytes)
