"""Runs of the clean stage on small files, through the same machinery as `prep clean`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from tokenmill_core.build import build_stage
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import DocumentsManifest
from tokenmill_core.pieces import group_pieces
from tokenmill_corpus import STAGE, CleanConfig

SENTENCE = "the quick brown fox jumps over the lazy dog again "
"""Ten words: just enough for the default threshold."""


@dataclass(frozen=True)
class Cleaned:
    folder: Path
    manifest: DocumentsManifest

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The documents of all parts, in order."""
        parts = [entry.path for entry in self.manifest.files if entry.documents is not None]
        return [row for part in parts for row in pq.read_table(self.folder / part).to_pylist()]

    @property
    def texts(self) -> list[str]:
        return [row["text"] for row in self.rows]

    @property
    def ledger(self) -> dict[str, tuple[int, int]]:
        return {row.reason: (row.documents, row.bytes) for row in self.manifest.ledger}

    @property
    def content(self) -> dict[str, bytes]:
        """Every file that was published, apart from the record of when and where."""
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}


@pytest.fixture
def clean(tmp_path: Path) -> Callable[..., Cleaned]:
    """clean(*inputs, out="clean", workers=1, **settings): the dataset that the stage makes of `inputs`."""

    def run(*inputs: Path, out: str = "clean", workers: int = 1, name: str | None = None, **settings: Any) -> Cleaned:
        stage = STAGE.build(CleanConfig(**settings), [str(path) for path in inputs], name)
        built = build_stage(stage, str(tmp_path / out), LocalExecutor(workers))
        return Cleaned(folder=tmp_path / out, manifest=built.loaded.manifest)

    return run


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Callable[[str, Iterable[Any]], Path]:
    """write_jsonl(name, rows): a JSON Lines file; a row that is a string is a document, bytes are a raw line."""

    def write(name: str, rows: Iterable[Any]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [r if isinstance(r, bytes) else orjson.dumps({"text": r} if isinstance(r, str) else r) for r in rows]
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    return write


@pytest.fixture
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task for every file, however small."""
    monkeypatch.setattr("tokenmill_core.sources.group_pieces", lambda pieces, _: group_pieces(pieces, 1))
