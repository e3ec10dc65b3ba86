"""Tokenizers trained by the stage itself on small files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from tokenmill_core.build import build_stage
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import TokenizerManifest
from tokenmill_tokenizer import STAGE, TrainTokenizerConfig

PROSE = [
    f"The {adjective} {noun} {verb} {count} {noun}s, and nobody's {noun} {verb} again.\n\n\tIndented {count * 37}!"
    for adjective in ("quick", "lazy", "brown")
    for noun in ("fox", "dog", "river", "Straße", "город")
    for verb in ("sees", "doesn't see", "jumped over")
    for count in range(3)
]


@dataclass(frozen=True)
class Trained:
    folder: Path
    manifest: TokenizerManifest

    @property
    def path(self) -> Path:
        return self.folder / "tokenizer.json"

    @property
    def json(self) -> bytes:
        return self.path.read_bytes()


@pytest.fixture(scope="session")
def train(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Trained]:
    """train(texts, vocab_size=320, **settings): the tokenizer that the stage makes of one JSON Lines file."""

    def run(texts: Sequence[str], vocab_size: int = 320, **settings: Any) -> Trained:
        folder = tmp_path_factory.mktemp("trained")
        raw = folder / "raw.jsonl"
        raw.write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts))
        stage = STAGE.build(TrainTokenizerConfig(vocab_size=vocab_size, **settings), [str(raw)], None)
        built = build_stage(stage, str(folder / "tokenizer"), LocalExecutor(1))
        return Trained(folder=folder / "tokenizer", manifest=built.loaded.manifest)

    return run


@pytest.fixture(scope="session")
def prose() -> list[str]:
    return PROSE


@pytest.fixture(scope="session", params=["gpt2", "cl100k"])
def trained(request: pytest.FixtureRequest, train: Callable[..., Trained]) -> Trained:
    """One tokenizer of each split, trained on prose."""
    return train(PROSE, split=request.param)
