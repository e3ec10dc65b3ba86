"""Settings of the readers."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from tokenmill_core.documents import DOCUMENT_SCHEMA
from tokenmill_core.manifest import Frozen
from tokenmill_core.readers.formats import Format


class TextUnit(StrEnum):
    """What of a plain text file is a document."""

    DOCUMENT = "document"
    """The file."""
    LINE = "line"
    """Each line that is not blank."""
    SEPARATOR = "separator"
    """Each part between separators that is not blank."""


class ReadOptions(Frozen):
    """How raw rows become documents."""

    text_field: str = "text"
    """Key or column that holds the text."""
    id_field: str = "id"
    """Key or column that holds the user's own id: text or an integer; anything else counts as no id."""
    carry: tuple[str, ...] = ()
    """Further keys or columns to keep as text: strings as they are, other values as compact JSON, none as null."""
    format: Format | None = None
    """Format of every file, whatever its name; none: by suffix."""
    text_unit: TextUnit = TextUnit.DOCUMENT
    """What of a plain text file is a document: `document` (the file), `line`, or `separator`. Code is never cut."""
    separator: str | None = None
    """With `text_unit = "separator"`: what stands between two documents, such as "<|endoftext|>"; it is in neither."""
    extraction_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    """Seconds that the main text of one web page may take to extract before the page is dropped."""
    strict: bool = False
    """Stop at the first row that gives no document, instead of counting it."""

    @field_validator("carry")
    @classmethod
    def _names_of_their_own(cls, carry: tuple[str, ...]) -> tuple[str, ...]:
        for name in carry:
            if not name or name in DOCUMENT_SCHEMA.names or carry.count(name) > 1:
                raise ValueError(
                    f"{name!r} cannot be carried: every name once, and none of {', '.join(DOCUMENT_SCHEMA.names)}, "
                    "which each document has anyway; name other fields"
                )
        return carry

    @model_validator(mode="after")
    def _separator_where_it_is_used(self) -> Self:
        if self.text_unit is TextUnit.SEPARATOR and not self.separator:
            raise ValueError("text_unit is 'separator' and there is none; give it with --separator")
        if self.separator is not None and self.text_unit is not TextUnit.SEPARATOR:
            raise ValueError(
                f"separator is {self.separator!r}, but text_unit is '{self.text_unit}': set it to 'separator' to use it"
            )
        return self
