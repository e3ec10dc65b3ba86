"""The other way round: from a document of the raw data to every sample that holds a part of it.

source:file:row or source:id ─ places of its shards ─▶ document ─ stream ─▶ windows ─ Mixture.samples_of ─▶ samples
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.progress import ProgressBar
from tokenmill_shards.audit.trace import Row, Tracer
from tokenmill_shards.formats.places import is_held_out
from tokenmill_shards.packing.reader import PackedReader
from tokenmill_shards.reading.reader import MixtureReader
from tokenmill_shards.reading.store import ShardStore

MAX_NAMED = 3
"""Files that a message suggests at most."""


MAX_ROW_DIGITS = 18
"""A longer number is no row, but part of an id."""
MAX_EPOCHS = 1_000_000
"""Epochs that are looked through for a document."""


class Query(NamedTuple):
    """What a person asks for: a source, and what may be an id, or a raw file with a row of it."""

    source: str
    rest: str

    @classmethod
    def parse(cls, text: str) -> "Query":
        """`SOURCE:FILE:ROW` or `SOURCE:ID`. Errors: `ConfigError` where it is neither."""
        source, _, rest = text.partition(":")
        if not source or not rest:
            raise ConfigError(f"--document {text!r}: expected SOURCE:FILE:ROW or SOURCE:ID, such as web:raw/a.jsonl:12")
        return cls(source, rest)

    @property
    def file_and_row(self) -> tuple[str, int] | None:
        """The file and the row, where it can be read so."""
        file, _, row = self.rest.rpartition(":")
        is_row = row.isascii() and row.isdigit() and len(row) <= MAX_ROW_DIGITS
        return (file, int(row)) if file and is_row else None


class Document(NamedTuple):
    """A document of a source, by numbers."""

    source: int
    shard: int
    number: int
    """In the shard."""


class Found(NamedTuple):
    """The samples that hold a part of a document, their global indices rising; `why_none` says why there are none."""

    samples: list[int]
    why_none: str = ""


def num_samples(reader: MixtureReader | PackedReader, tokens: int | None) -> int:
    """Samples that training on `tokens` takes: by default all packed ones, or as many tokens as the sources have."""
    if isinstance(reader, PackedReader):
        wanted = reader.num_samples if tokens is None else -(-tokens // reader.sequence_length)
        return min(reader.num_samples, wanted)
    if tokens is None:
        tokens = sum(source.training_tokens for source in reader.manifest.sources)
    return -(-tokens // reader.sequence_length)


def trace_document(tracer: Tracer, query: Query, below: int) -> tuple[list[Row], list[str]]:
    """The rows of what `query` names in all samples under `below`, and a line for each document that is in none.

    Errors: `InputError` where there is no such source, or no such document in it.
    """
    rows: list[Row] = []
    reasons = []
    stores = _stores(tracer.reader)
    for document in find_documents(stores, query):
        store = stores[document.source]
        found = samples_with(tracer.reader, document, below)
        rows += tracer.samples(found.samples, only=(store.name, document.shard, document.number))
        if not found.samples:
            origin = store.place(document.shard, document.number)
            reasons.append(f"{store.name}: {origin.file}, row {origin.row}: {found.why_none}")
    return sorted(rows, key=lambda row: (row["sample"], row["first_token"])), reasons


def find_documents(stores: Sequence[ShardStore], query: Query) -> list[Document]:
    """The documents that `query` names: several where an id stands more than once.

    Errors: `InputError` where there is no such source, or no such document in it.
    """
    names = [store.name for store in stores]
    if query.source not in names:
        raise InputError(f"--document: there is no source {query.source!r}; there are {', '.join(names)}")
    source = names.index(query.source)
    num_shards, found = len(stores[source].load().manifest.shards), []
    with ProgressBar(f"looking through {query.source}", num_shards) as bar:
        for shard in range(num_shards):
            found += [Document(source, shard, number) for number in find_rows(stores[source].places(shard), query)]
            bar.advance()
    if not found:
        raise InputError(f"--document: source {query.source} has no document {_not_found(stores[source], query)}")
    return found


def find_rows(places: Path, query: Query) -> Iterator[int]:
    """Numbers of the documents of one shard that `query` names; reads a row group at a time."""
    first = 0
    with pq.ParquetFile(places) as table:
        for group in range(table.num_row_groups):
            rows = table.read_row_group(group, columns=["file", "row", "id"])
            named = pc.fill_null(pc.equal(rows["id"], query.rest), False)
            if query.file_and_row:
                file, row = query.file_and_row
                named = pc.or_(named, pc.and_(pc.equal(rows["file"], file), pc.equal(rows["row"], row)))
            yield from (np.flatnonzero(named.to_numpy()) + first).tolist()
            first += rows.num_rows


def samples_with(reader: MixtureReader | PackedReader, document: Document, below: int) -> Found:
    """The samples under `below` that hold a part of `document`."""
    if isinstance(reader, PackedReader):
        return _in_packed(reader, document, below)
    return _in_mixture(reader, document, below)


def _in_mixture(reader: MixtureReader, document: Document, below: int) -> Found:
    mixture, length, stream = reader.mixture, reader.sequence_length, reader.training[document.source]
    why_none = _why_never(stream.store, document, reader.manifest.validation_share)
    if why_none:
        return Found([], why_none)
    documents = stream.documents(document.shard)
    place = int(np.searchsorted(documents.numbers, document.number))
    epochs = int(mixture.counts(below)[document.source]) // max(1, int(mixture.num_windows[document.source]))
    if epochs > MAX_EPOCHS:
        raise InputError(
            f"--tokens: {below:,} samples are {epochs:,} epochs of {stream.name}, and at most {MAX_EPOCHS:,} are "
            "looked through: ask for fewer tokens"
        )
    first, stop = (documents.offsets[place : place + 2] + stream.shard_offsets[document.shard]).tolist()
    # Window w reads tokens w·L to w·L + L, both included.
    last = min((stop - 1) // length, int(mixture.num_windows[document.source]) - 1)
    windows = range(max(0, -(-(first - length) // length)), last + 1)
    samples = {sample for window in windows for sample in mixture.samples_of(document.source, window, below)}
    return Found(sorted(samples), f"in none of the first {below:,} samples")


def _in_packed(reader: PackedReader, document: Document, below: int) -> Found:
    if reader.mixture and reader.stores:
        share = reader.mixture.manifest.validation_share
        why_none = _why_never(reader.stores[document.source], document, share)
        if why_none:
            return Found([], why_none)
    samples: set[int] = set()
    offsets = np.cumsum([0, *reader.manifest.shard_samples]).tolist()
    with ProgressBar("looking through the sequences", len(offsets) - 1) as bar:
        for number, offset in enumerate(offsets[:-1]):
            pieces = reader.shard_pieces(number)
            here = (pieces.source == document.source) & (pieces.shard == document.shard)
            samples.update((pieces.sequence[here & (pieces.document == document.number)] + offset).tolist())
            bar.advance()
    return Found(sorted(sample for sample in samples if sample < below), f"in none of the first {below:,} sequences")


def _why_never(store: ShardStore, document: Document, validation_share: float) -> str:
    """Why no training, however long, reads `document`; empty where one does."""
    offsets, number = store.index(document.shard).document_offsets, document.number
    if offsets[number] == offsets[number + 1]:
        return "it has no tokens: no sample"
    if validation_share and is_held_out(store.hashes(document.shard)[number : number + 1], validation_share)[0]:
        return "held out: no sample"
    return ""


def _stores(reader: MixtureReader | PackedReader) -> Sequence[ShardStore]:
    if isinstance(reader, MixtureReader):
        return [stream.store for stream in reader.training]
    if reader.stores is None:
        raise InputError("--document: the mixture that was packed is not where it was; move it back to look for one")
    return reader.stores


def _not_found(store: ShardStore, query: Query) -> str:
    """What is not there, and what may have been meant."""
    what = f"with id {query.rest!r}"
    if query.file_and_row is None:
        return f"{what}; give it as the data has it"
    file, row = query.file_and_row
    what += f", and none in row {row} of file {file!r}"
    meant = " or ".join(f"{query.source}:{name}:{row}" for name in _files_ending(store, file)[:MAX_NAMED])
    if meant:
        return f"{what}; a file is named with its input before it: {meant}"
    return f"{what}; name the file as `prep trace --sample --json` does, and the row counted from 1"


def _files_ending(store: ShardStore, file: str) -> list[str]:
    """The raw files of `store` that a person who leaves out the input, or folders, calls `file`."""
    names: set[str] = set()
    for shard in range(len(store.load().manifest.shards)):
        with pq.ParquetFile(store.places(shard)) as table:
            for group in range(table.num_row_groups):
                column = pc.unique(table.read_row_group(group, columns=["file"])["file"])
                names.update(name for name in column.to_pylist() if name and name.endswith(f"/{file}"))
    return sorted(names)
