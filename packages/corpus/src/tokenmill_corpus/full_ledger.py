"""The full ledger: a row for each document that was dropped, and for each edit of one, in Parquet beside the others.

filter task ─▶ rows kept in its work folder ─▶ write task, which adds its own ─▶ dropped-NNNNN, edited-NNNNN.parquet
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokenmill_core.manifest import FileEntry
from tokenmill_core.storage import AtomicWriter, HashingWriter
from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Rule

_PLACE = [
    pa.field("id", pa.string()),
    pa.field("file", pa.string(), nullable=False),
    pa.field("row", pa.int64(), nullable=False),
    pa.field("bytes", pa.int64(), nullable=False),
    pa.field("rule", pa.string(), nullable=False),
]
DROPPED_SCHEMA = pa.schema(
    [
        *_PLACE,
        pa.field("value", pa.float64()),
        pa.field("threshold", pa.float64()),
        pa.field("detail", pa.string()),
        pa.field("kept_id", pa.string()),
        pa.field("kept_file", pa.string()),
        pa.field("kept_row", pa.int64()),
    ]
)
"""`bytes`: of the text as the rule saw it. `kept_*`: for duplicates, the document that stays in its place."""
EDITED_SCHEMA = pa.schema(_PLACE)
"""`bytes`: what was taken from the text; below zero where it became longer."""


@dataclass
class Rows:
    """Rows of one schema, gathered as documents go by."""

    schema: pa.Schema
    tables: list[pa.Table] = field(default_factory=list)

    def add(
        self,
        documents: Documents,
        which: NDArray[np.bool_],
        rule: str,
        num_bytes: NDArray[np.int64],
        **columns: pa.Array,
    ) -> None:
        """The documents of a batch where `which` holds; `columns` has a value for each of these, null where absent."""
        count, mask = int(which.sum()), pa.array(which)
        if not count:
            return
        known = {
            **{name: documents.batch.column(name).filter(mask) for name in ("id", "file", "row")},
            "bytes": pa.array(num_bytes[which]),
            "rule": pa.repeat(pa.scalar(rule), count),
            **columns,
        }
        arrays = [known[f.name].cast(f.type) if f.name in known else pa.nulls(count, f.type) for f in self.schema]
        self.tables.append(pa.Table.from_arrays(arrays, schema=self.schema))

    def save(self, path: Path) -> None:
        """Keep the rows for a later phase."""
        with AtomicWriter(path) as file, pa.ipc.new_file(file, self.schema) as writer:
            for table in self.tables:
                writer.write_table(table)

    def load(self, path: Path) -> None:
        """Add the rows that `save` kept."""
        with pa.memory_map(str(path)) as file:
            self.tables.append(pa.ipc.open_file(file).read_all())

    def write(self, path: Path) -> tuple[FileEntry, ...]:
        """Write all rows, in the order of the raw files, as Parquet; nothing where there are none."""
        if not any(table.num_rows for table in self.tables):
            return ()
        order = [(name, "ascending") for name in ("file", "row", "rule")]
        rows = pa.concat_tables(self.tables).sort_by(order)
        with HashingWriter(path) as file:
            pq.write_table(rows, file, compression="zstd")
        return (FileEntry(path=path.name, bytes=file.bytes, sha256=file.sha256),)


@dataclass
class FullLedger:
    """Both kinds of rows of one task."""

    dropped: Rows = field(default_factory=lambda: Rows(DROPPED_SCHEMA))
    edited: Rows = field(default_factory=lambda: Rows(EDITED_SCHEMA))

    def drop(self, documents: Documents, drops: NDArray[np.bool_], reason: str, rule: Rule) -> None:
        """The documents of a batch that `rule` drops."""
        self.dropped.add(
            documents,
            drops,
            reason,
            documents.text.num_bytes,
            value=pa.array(rule.values[drops]),
            threshold=pa.repeat(pa.scalar(float(rule.threshold)), int(drops.sum())),
            **({} if rule.detail is None else {"detail": rule.detail.filter(pa.array(drops))}),
        )

    def edit(self, documents: Documents, reason: str, removed: NDArray[np.int64]) -> None:
        """The documents of a batch from which an edit took something, or to which it added."""
        self.edited.add(documents, removed != 0, reason, removed)

    def save(self, stem: Path) -> None:
        """Keep the rows for a later phase."""
        for name, rows in self._kinds():
            rows.save(stem.with_suffix(f".{name}.arrow"))

    def load(self, stem: Path) -> None:
        """Add the rows that `save` kept."""
        for name, rows in self._kinds():
            rows.load(stem.with_suffix(f".{name}.arrow"))

    def write(self, folder: Path, task: int) -> tuple[FileEntry, ...]:
        """Write `dropped-NNNNN.parquet` and `edited-NNNNN.parquet`, each where it has rows."""
        return tuple(
            entry for name, rows in self._kinds() for entry in rows.write(folder / f"{name}-{task:05d}.parquet")
        )

    def _kinds(self) -> tuple[tuple[str, Rows], tuple[str, Rows]]:
        return ("dropped", self.dropped), ("edited", self.edited)
