"""One way for tests to read a piece of a raw file, with the promises that every reader makes checked on the way."""

from dataclasses import dataclass, field
from typing import Any

from tokenmill_core.documents import Account, Reject, document_schema
from tokenmill_core.readers import Format, Piece, ReadOptions, read_piece


@dataclass
class Outcome:
    """What came of a piece."""

    rows: list[dict[str, Any]]
    account: Account
    rejects: list[Reject] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """Rows of each batch."""

    @property
    def texts(self) -> list[str]:
        return [row["text"] for row in self.rows]

    @property
    def places(self) -> list[int]:
        return [row["row"] for row in self.rows]

    @property
    def rejected(self) -> list[tuple[int, str]]:
        return [(reject.row, reject.reason) for reject in self.rejects]

    def column(self, name: str) -> list[str | None]:
        return [row[name] for row in self.rows]


def read(path: object, format: Format, *, piece: Piece | None = None, **options: Any) -> Outcome:
    """All documents of the file at `path`, or of `piece`."""
    rejects: list[Reject] = []
    account = Account(on_reject=rejects.append)
    settings = ReadOptions(**options)
    piece = piece or Piece(url=str(path), name="set/a", format=format, bytes=0)
    rows, sizes = [], []
    for batch in read_piece(piece, settings, account):
        batch.validate(full=True)
        assert batch.schema.equals(document_schema(settings.carry))
        rows += batch.to_pylist()
        sizes.append(batch.num_rows)
    assert account.documents == len(rows) + len(rejects)
    kept_bytes = sum(len(row["text"].encode()) for row in rows)
    assert account.bytes == kept_bytes + sum(reject.bytes for reject in rejects)
    return Outcome(rows, account, rejects, sizes)
