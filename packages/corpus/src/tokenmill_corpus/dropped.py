"""The full ledger: a row for each document that was dropped, in Parquet beside the documents that stay."""

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

DROPPED_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("threshold", pa.float64()),
        pa.field("detail", pa.string()),
        pa.field("kept_id", pa.string()),
        pa.field("kept_file", pa.string()),
        pa.field("kept_row", pa.int64()),
    ]
)
"""`bytes`: of the text as the rule saw it. `kept_*`: for duplicates, the document that stays in its place."""


@dataclass
class DroppedRows:
    """Rows of `DROPPED_SCHEMA`, gathered as documents are dropped."""

    tables: list[pa.Table] = field(default_factory=list)

    def add(self, documents: Documents, drops: NDArray[np.bool_], reason: str, rule: Rule) -> None:
        """The documents of a batch that `rule` drops."""
        self.add_rows(
            documents,
            drops,
            reason,
            value=pa.array(rule.values[drops]),
            threshold=pa.repeat(pa.scalar(float(rule.threshold)), int(drops.sum())),
            **({} if rule.detail is None else {"detail": rule.detail.filter(pa.array(drops))}),
        )

    def add_rows(self, documents: Documents, drops: NDArray[np.bool_], reason: str, **columns: pa.Array) -> None:
        """The documents of a batch where `drops` holds; `columns` has a value for each of these, null where absent."""
        count, mask = int(drops.sum()), pa.array(drops)
        known = {
            **{name: documents.batch.column(name).filter(mask) for name in ("id", "file", "row")},
            "bytes": pa.array(documents.text.num_bytes[drops]),
            "rule": pa.repeat(pa.scalar(reason), count),
            **columns,
        }
        arrays = [known[f.name].cast(f.type) if f.name in known else pa.nulls(count, f.type) for f in DROPPED_SCHEMA]
        self.tables.append(pa.Table.from_arrays(arrays, schema=DROPPED_SCHEMA))

    def save(self, path: Path) -> None:
        """Keep the rows for a later phase."""
        with AtomicWriter(path) as file, pa.ipc.new_file(file, DROPPED_SCHEMA) as writer:
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
        rows = pa.concat_tables(self.tables).sort_by([("file", "ascending"), ("row", "ascending")])
        with HashingWriter(path) as file:
            pq.write_table(rows, file, compression="zstd")
        return (FileEntry(path=path.name, bytes=file.bytes, sha256=file.sha256),)
