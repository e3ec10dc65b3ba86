"""Commands run as a shell would run them, and the small data that they are fed."""

import json
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import tokenizers

from tokenmill_core.build import build_stage
from tokenmill_core.cli import main
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest_io import load_manifest
from tokenmill_core.manifest_kinds import Manifest
from tokenmill_tokenizer.train import STAGE as TRAIN
from tokenmill_tokenizer.train_config import TrainTokenizerConfig

PROSE = "The quick brown fox jumps over the lazy dog, and nobody's dog jumps back; it sleeps by the river."


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def prep(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """prep("clean", …): the command, in this process; its warnings go to `caplog`."""

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["prep", *map(str, arguments)])
        handler = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.raises(SystemExit) as end:
                main()
        finally:
            signal.signal(signal.SIGTERM, handler)
        captured = capsys.readouterr()
        return Outcome(code=int(end.value.code or 0), out=captured.out, err=captured.err)

    return run


@dataclass(frozen=True)
class Dataset:
    """What a command published in a folder."""

    folder: Path

    @property
    def exists(self) -> bool:
        return (self.folder / "manifest.json").exists()

    @property
    def manifest(self) -> Manifest:
        return load_manifest(str(self.folder)).manifest

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The documents of a documents dataset, in order."""
        parts = sorted(self.folder.glob("part-*.parquet"))
        return [row for part in parts for row in pq.read_table(part).to_pylist()]

    @property
    def texts(self) -> list[str]:
        return [row["text"] for row in self.rows]

    @property
    def ledger(self) -> dict[str, int]:
        return {row.reason: row.documents for row in self.manifest.ledger}

    @property
    def rejects(self) -> list[dict[str, Any]]:
        path = self.folder / "rejects.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def content(self) -> dict[str, bytes]:
        """Every file but the record of when and where it was built."""
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}


@pytest.fixture
def dataset(tmp_path: Path) -> Callable[[str], Dataset]:
    """dataset("clean"): what lies in the folder of this name."""
    return lambda name: Dataset(tmp_path / name)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a byte-level tokenizer of 300 ids, end of document at 0."""
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "prose.txt").write_text(PROSE * 20)
    stage = TRAIN.build(TrainTokenizerConfig(vocab_size=300), [str(folder / "prose.txt")], None)
    build_stage(stage, str(folder / "tokenizer"), LocalExecutor(1))
    return folder / "tokenizer"


@pytest.fixture
def word_tokenizer(tmp_path: Path) -> Callable[..., Path]:
    """word_tokenizer(size, end="<eos>"): a tokenizer.json of `size` ids: `w0`, `w1`, …, and at the top its end."""

    def write(size: int, end: str = "<eos>") -> Path:
        model = tokenizers.models.WordLevel({f"w{number}": number for number in range(size - 1)}, unk_token="w0")
        made = tokenizers.Tokenizer(model)
        made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        made.normalizer = tokenizers.normalizers.Replace("nothing", "")
        made.add_special_tokens([end])
        path = tmp_path / f"words-{size}.json"
        made.save(str(path))
        return path

    return write


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[[str, Iterable[Any]], Path]:
    """write_lines("raw/a.jsonl", rows): JSON Lines; a row that is bytes stands as it is, a string is a text."""

    def write(name: str, rows: Iterable[Any]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (
            row if isinstance(row, bytes) else json.dumps({"text": row} if isinstance(row, str) else row).encode()
            for row in rows
        )
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    return write
