"""From the name of a raw file, as documents carry it, to where it lies: through the lineage of their dataset."""

from contextlib import suppress
from functools import lru_cache
from typing import Any

from tokenmill_core import storage
from tokenmill_core.errors import TokenmillError
from tokenmill_core.lineage import raw_url, read_raw_files
from tokenmill_core.manifest import Kind
from tokenmill_core.manifest_io import LoadedManifest, load_input
from tokenmill_shards.reading.store import ShardStore


class RawPaths:
    """Finds raw files. A lineage is followed once for each dataset."""

    def __init__(self) -> None:
        self._of = lru_cache(maxsize=None)(lambda store: raw_paths(store.load()))

    def find(self, store: ShardStore, file: str) -> str | None:
        """Where the raw file that documents of `store` call `file` lies; none where it is not found."""
        url = self._of(store).get(file)
        return url if url and _is_there(url) else None


def _is_there(url: str) -> bool:
    """Whether a file lies at `url`. A server that does not say is no error, nor waited for: a path is only a help."""
    if "/../" in url:  # out of the host or bucket (`storage.from_relative`); a web server would take it for its top
        return False
    with suppress(TokenmillError, OSError):
        return storage.exists(url, waits=())
    return False


def raw_paths(loaded: LoadedManifest[Any]) -> dict[str, str | None]:
    """Name ─▶ place of the raw files behind a dataset; none for a name that means two files. Broken links stay out."""
    paths: dict[str, str | None] = {}
    for number, ref in enumerate(loaded.manifest.inputs):
        found: dict[str, str | None] = {}
        with suppress(TokenmillError, OSError):
            if ref.kind is Kind.RAW:
                rows = [row for row in read_raw_files(loaded) if row["input"] == ref.name]
                found = {f"{ref.name}/{row['path']}": raw_url(loaded.input_url(number), row) for row in rows}
            elif ref.kind in (Kind.DOCUMENTS, Kind.TOKENS):
                found = raw_paths(load_input(loaded, number))
        paths |= {name: url if paths.get(name, url) == url else None for name, url in found.items()}
    return paths
