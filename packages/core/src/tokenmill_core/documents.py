"""Documents as Arrow batches, and the account of what was read.

Every reader yields record batches of `DOCUMENT_SCHEMA`; `file` and `row` lead back to the raw file.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tokenmill_core.manifest import LedgerRow

DOCUMENT_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
    ]
)
"""`id`: the user's own id as text, or null. `file`: name of the raw file, `<input name>/<path below it>`.
`row`: from 1; the line of a text format (a CSV row's first), the row of Parquet or Arrow, the record of a WARC file,
the part of a text cut at a separator; 1 where the file is the document."""

MAX_BATCH_BYTES = 4 << 20
"""A reader closes a batch when its text reaches this size; one larger document makes a batch of its own."""

MAX_RAW_BYTES = 1 << 20
"""How much of a rejected row is kept."""


def document_schema(carry: Sequence[str] = ()) -> pa.Schema:
    """`DOCUMENT_SCHEMA` followed by a nullable string column for each name of `carry`, in their order."""
    return pa.schema([*DOCUMENT_SCHEMA, *(pa.field(name, pa.string()) for name in carry)])


@dataclass(frozen=True)
class Reject:
    """A raw row that gave no document."""

    file: str
    row: int
    reason: str
    raw: bytes
    """The row as it stands in the file, or the first `MAX_RAW_BYTES` of it."""
    bytes: int
    """Bytes of the raw row, or of the text where it had one."""


@dataclass
class Account:
    """Documents and bytes that came in, what was dropped of them and why. It balances when the kept ones are added."""

    documents: int = 0
    bytes: int = 0
    dropped: dict[str, tuple[int, int]] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)
    on_reject: Callable[[Reject], None] | None = None

    def take_in(self, documents: int, num_bytes: int) -> None:
        """Count documents that were read as documents."""
        self.documents += documents
        self.bytes += num_bytes

    def drop(self, reason: str, documents: int, num_bytes: int) -> None:
        """Count documents, taken in before, as dropped for `reason`."""
        if documents or num_bytes:
            old_documents, old_bytes = self.dropped.get(reason, (0, 0))
            self.dropped[reason] = (old_documents + documents, old_bytes + num_bytes)

    def reject(self, reject: Reject) -> None:
        """Take in and drop a row that gave no document."""
        self.take_in(1, reject.bytes)
        self.drop(reject.reason, 1, reject.bytes)
        if self.on_reject:
            self.on_reject(reject)

    def note(self, what: str, count: int = 1) -> None:
        """Count something seen that dropped nothing."""
        if count:
            self.notes[what] = self.notes.get(what, 0) + count

    def ledger(self) -> list[LedgerRow]:
        """The dropped, by reason."""
        return ledger_rows(self.dropped)


def ledger_rows(dropped: dict[str, tuple[int, int]]) -> list[LedgerRow]:
    """Ledger rows in the order of their reasons."""
    return [LedgerRow(reason=reason, documents=d, bytes=b) for reason, (d, b) in sorted(dropped.items())]


def merge_ledgers(ledgers: Iterable[Iterable[LedgerRow]]) -> list[LedgerRow]:
    """The sum of several ledgers."""
    account = Account()
    for row in (row for ledger in ledgers for row in ledger):
        account.drop(row.reason, row.documents, row.bytes)
    return account.ledger()
