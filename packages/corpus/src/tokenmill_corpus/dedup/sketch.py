"""What deduplication keeps of documents while their text is at hand: keys to find duplicates by, and ranks.

documents ─▶ digests, URL digests, band keys, ranks ─▶ sorted .npy files in the work folder, one a task and method
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.errors import InputError
from tokenmill_core.stage import Work
from tokenmill_corpus.dedup.exact import normalised_digests, text_digests
from tokenmill_corpus.dedup.keys import Records, save_array, save_sorted
from tokenmill_corpus.dedup.methods import Method, methods
from tokenmill_corpus.dedup.minhash import band_keys
from tokenmill_corpus.dedup.order import keys_path, ranks, ranks_path
from tokenmill_corpus.dedup.settings import DedupSettings, Exact
from tokenmill_corpus.dedup.url import url_digests
from tokenmill_corpus.documents import Documents

DIGEST = np.dtype([("key", "<u8"), ("rest", "<u8"), ("index", "<u4")])
BAND = np.dtype([("key", "<u8"), ("index", "<u4")])
"""`index`: which document of the batch, and once written of the task."""
PART_BYTES = 64 << 20
"""Keys that are written as a part once there are so many of them."""


@dataclass(frozen=True)
class Sketch:
    """Keys and ranks of some documents of a task."""

    num_documents: int = 0
    keys: Mapping[Method, Records] = field(default_factory=dict)
    """Records of `DIGEST` or `BAND`."""
    ranks: NDArray[np.uint64] | None = None


class SketchWriter:
    """Writes the sketch of a filter task, for the phases to come.

    In parts, each sorted by itself, so that memory stays bounded however many documents a task has.
    """

    def __init__(self, work: Work, task: int) -> None:
        self._work, self._task = work, task
        self._keys: dict[Method, list[Records]] = {}
        self._ranks: list[NDArray[np.uint64]] = []
        self._num_documents = self._num_parts = self._bytes = 0

    def add(self, sketch: Sketch) -> None:
        """Append the sketch of the task's next documents."""
        for method, records in sketch.keys.items():
            records["index"] += np.uint32(self._num_documents)
            self._keys.setdefault(method, []).append(records)
            self._bytes += records.nbytes
        if sketch.ranks is not None:
            self._ranks.append(sketch.ranks)
        self._num_documents += sketch.num_documents
        if self._bytes >= PART_BYTES:
            self._write_part()

    def close(self) -> None:
        """Write what is left."""
        self._write_part()
        if self._ranks:
            save_array(ranks_path(self._work, self._task), np.concatenate(self._ranks))

    def _write_part(self) -> None:
        for method, parts in self._keys.items():
            save_sorted(keys_path(self._work, self._task, method, self._num_parts), np.concatenate(parts))
        self._keys, self._bytes = {}, 0
        self._num_parts += 1


def sketch(settings: DedupSettings, documents: Documents) -> Sketch:
    """The sketch of a batch of documents.

    Errors: `InputError` where a column that `settings` name is not there.
    """
    keys = {method: _keys(method, settings, documents) for method in methods(settings)}
    return Sketch(len(documents), keys, ranks(settings, documents))


def _keys(method: Method, settings: DedupSettings, documents: Documents) -> Records:
    if method is Method.NEAR:
        return _band_records(*band_keys(settings.minhash, documents.text))
    if method is Method.URL:
        return _digest_records(*_url_digests(settings.url_column, documents))
    by_words = method is Method.NORMALISED or (method is Method.BLOOM and settings.exact is Exact.NORMALISED)
    digests = normalised_digests(documents.text) if by_words else text_digests(documents.text)
    return _digest_records(digests, np.ones(len(documents), np.bool_))


def _url_digests(column: str, documents: Documents) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    if documents.batch.schema.get_field_index(column) < 0:
        names = ", ".join(documents.batch.schema.names)
        raise InputError(f"url_column {column!r}: the documents have no such column, but {names}")
    return url_digests(documents.batch.column(column))


def _digest_records(digests: NDArray[np.uint64], found: NDArray[np.bool_]) -> Records:
    records = np.empty(len(digests), DIGEST)
    records["key"], records["rest"], records["index"] = digests[:, 0], digests[:, 1], np.arange(len(digests))
    return records[found]


def _band_records(keys: NDArray[np.uint64], found: NDArray[np.bool_]) -> Records:
    records = np.empty(keys.shape, BAND)
    records["key"], records["index"] = keys, np.arange(len(keys))[:, None]
    return records[found].reshape(-1)
