"""Columns beside the text: whether they are there at all, as a name that is mistyped would change nothing unseen."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow.parquet as pq

from tokenmill_core import storage
from tokenmill_core.documents import DOCUMENT_SCHEMA
from tokenmill_core.errors import InputError
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_corpus.documents import Documents

_LOG = logging.getLogger("tokenmill")


def counting(batches: Iterable[Documents], columns: Sequence[str], filled: Counter[str]) -> Iterator[Documents]:
    """The same batches, while `filled` counts the values of each column that are not null."""
    for documents in batches:
        for name in columns:
            filled[name] += len(documents) - documents.batch.column(name).null_count
        yield documents


def refuse_empty(filled: Counter[str], needed: Sequence[str]) -> None:
    """Raise if a column that rules or dedup look at is null in all documents; warn where it was only to be carried."""
    for name in sorted(name for name, count in filled.items() if not count):
        if name in needed:
            raise InputError(
                f"no document has a value in {name!r}, which a setting of filter or dedup names: "
                "name the column that holds it, or switch off what looks at it"
            )
        _LOG.warning("--carry %s: no document has a value there", name)


def warn_of_lost(loaded: Sequence[LoadedManifest[Any]], carried: Sequence[str]) -> None:
    """Warn where a dataset has columns that will not be in what is made of it."""
    for item in loaded:
        first = next((entry for entry in item.manifest.files if entry.documents is not None), None)
        if first is None:
            continue
        with storage.open_read(storage.inside(item.folder, first.path)) as file:
            names = pq.read_schema(file).names
        if lost := [name for name in names if name not in (*DOCUMENT_SCHEMA.names, *carried)]:
            _LOG.warning("%s: columns left behind: %s; --carry NAME keeps one, as text", item.url, ", ".join(lost))
