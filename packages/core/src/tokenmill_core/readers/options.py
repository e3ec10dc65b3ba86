"""Settings of the readers."""

from tokenmill_core.manifest import Frozen
from tokenmill_core.readers.formats import Format


class ReadOptions(Frozen):
    """How raw rows become documents."""

    text_field: str = "text"
    """Key or column that holds the text."""
    id_field: str = "id"
    """Key or column that holds the user's own id: text or an integer; anything else counts as no id."""
    format: Format | None = None
    """Format of every file, whatever its name; none: by suffix."""
    strict: bool = False
    """Stop at the first row that gives no document, instead of counting it."""
