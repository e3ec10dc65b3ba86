"""The check of content that a package which writes letters would offer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_core.verify import Checked


def check_letters(loaded: LoadedManifest[Any], checked: Checked) -> Iterator[str]:
    """No line of the files has a digit."""
    for entry in loaded.manifest.files:
        if entry.path.startswith("letters-"):
            lines = Path(loaded.file_url(entry.path)).read_text().splitlines()
            checked.documents += len(lines)
            yield from (f"{entry.path}: {line!r} has a digit" for line in lines if any(map(str.isdigit, line)))


def stumble(loaded: LoadedManifest[Any], checked: Checked) -> Iterator[str]:
    """Finds something, and breaks off at what it did not expect."""
    yield "something"
    raise ValueError(f"no letters in {loaded.manifest.name}")
