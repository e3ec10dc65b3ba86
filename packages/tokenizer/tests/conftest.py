"""Tokenizers trained by the stage itself on small files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tokenmill_core.build import build_stage
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import TokenizerManifest
from tokenmill_tokenizer.splits import Split, SplitRule, pre_tokenizer
from tokenmill_tokenizer.train import STAGE
from tokenmill_tokenizer.train_config import TrainTokenizerConfig

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


CODE = [
    "#version 330\n\n\nint main()\n{\n\treturn 0;\n}\n",
    "def f(x):\n    return {'a': 12345}\n\n\n",
    "camelCase HTTPServer a//b",
]
SPECIALS = ["<|endoftext|>", "<|pad|>"]

SaveTokenizer = Callable[..., str]
"""save(tokenizer_or_parsed_json) -> its path."""


@pytest.fixture(scope="session")
def save_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> SaveTokenizer:
    """save_tokenizer(parsed): the path of a `tokenizer.json` with that content."""

    def save(parsed: dict[str, Any]) -> str:
        path = tmp_path_factory.mktemp("saved") / "tokenizer.json"
        path.write_bytes(orjson.dumps(parsed))
        return str(path)

    return save


@pytest.fixture(scope="session")
def byte_level() -> Callable[..., dict[str, Any]]:
    """byte_level(split): the parsed `tokenizer.json` of 600 ids that `tokenizers` trains on prose and code."""

    @cache
    def train_with_tokenizers(split: Split) -> bytes:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizer(SplitRule(split=split))
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        trainer = trainers.BpeTrainer(
            vocab_size=600, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.train_from_iterator([*PROSE, *CODE * 9, " <|endoftext|> spam <|pad|>" * 9], trainer)
        return tokenizer.to_str().encode()

    return lambda split=Split.CL100K: orjson.loads(train_with_tokenizers(split))


@pytest.fixture(scope="session")
def sentencepiece_like() -> dict[str, Any]:
    """The parsed `tokenizer.json` of a BPE tokenizer like those made from SentencePiece models."""
    specials = ["<unk>", "<s>", "</s>"]
    single_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=specials + single_bytes, show_progress=False)
    tokenizer.train_from_iterator([word for text in PROSE for word in text.split("\n")], trainer)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    parsed: dict[str, Any] = orjson.loads(tokenizer.to_str())
    parsed["added_tokens"] = [token for token in parsed["added_tokens"] if token["content"] in specials]
    return parsed
