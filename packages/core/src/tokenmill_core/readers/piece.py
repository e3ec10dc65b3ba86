"""A piece of a raw file: what a reader is handed, and the unit that tasks are made of."""

from dataclasses import dataclass
from typing import Any, Self

from tokenmill_core.readers.formats import Format


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A file, some row groups of a Parquet file, or a range of the lines of a plain one."""

    url: str
    name: str
    """Value of the `file` column: `<group>/<file name>`."""
    format: Format
    bytes: int
    """Bytes of the file, or the piece's share of them."""
    row_groups: tuple[int, ...] | None = None
    """Row groups of a Parquet file; none: the whole file."""
    byte_range: tuple[int, int] | None = None
    """Start and end of whole lines in an uncompressed file; none: the whole file."""
    first_row: int = 1
    """Row in the file, counted from 1, of the piece's first row."""
    documents: bool = False
    """Whether the file belongs to a documents manifest: its `file` and `row` columns lead to the raw files already."""

    def to_json(self) -> dict[str, Any]:
        """The piece as a JSON object."""
        return {
            "url": self.url,
            "name": self.name,
            "format": self.format.value,
            "bytes": self.bytes,
            "row_groups": None if self.row_groups is None else list(self.row_groups),
            "byte_range": None if self.byte_range is None else list(self.byte_range),
            "first_row": self.first_row,
            "documents": self.documents,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The inverse of `to_json`."""
        parts = {name: value[name] and tuple(value[name]) for name in ("row_groups", "byte_range")}
        return cls(**value | parts | {"format": Format(value["format"])})
