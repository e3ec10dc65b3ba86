"""Small real datasets, written by the same code that writes large ones."""

import hashlib
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

from tokenmill_core import storage
from tokenmill_core.build import build_stage
from tokenmill_core.cli import main
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import FileEntry, StageRef, TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, input_ref, publish
from tokenmill_core.mixture_manifest import MixtureManifest, MixtureSource, MixtureStage
from tokenmill_core.pieces import group_pieces
from tokenmill_shards import MixtureReader, ShardWriter, dtype_for
from tokenmill_shards.formats.places import PLACES_SCHEMA, PLACES_SUFFIX
from tokenmill_shards.mixing.held_out import count_shards
from tokenmill_shards.reading.store import shard_tokens
from tokenmill_shards.writing.tokenize import STAGE as TOKENIZE
from tokenmill_shards.writing.tokenize import TokenizeConfig
from tokenmill_tokenizer import Encoder
from tokenmill_tokenizer.decode import Decoder
from tokenmill_tokenizer.train import STAGE as TRAIN
from tokenmill_tokenizer.train_config import TrainTokenizerConfig

MakeTokens = Callable[..., LoadedManifest[TokensManifest]]


def hash_of(name: str, shard: int, document: int) -> int:
    """The hash that a document of `make_tokens` has, as if of its text."""
    return int.from_bytes(hashlib.sha256(f"{name}/{shard}/{document}".encode()).digest()[:8]) | 1  # all are odd


@pytest.fixture
def make_tokens(tmp_path: Path) -> MakeTokens:
    """make_tokens(name, shards, vocab_size): a tokens dataset; `shards` holds the lengths of each shard's documents.

    Token i of the dataset has the id i mod `vocab_size`. Document d of a shard stands in row 10 + d of the raw file
    `<name>/<shard>.jsonl`.
    """

    def make(name: str, shards: Sequence[Sequence[int]], vocab_size: int = 60_000) -> LoadedManifest[TokensManifest]:
        folder, offset = tmp_path / name, 0
        files: list[FileEntry] = []
        for number, lengths in enumerate(shards):
            prefix = folder / f"shard-{number:05d}"
            with ShardWriter(prefix, dtype_for(vocab_size), vocab_size) as writer:
                writer.append((offset + np.arange(sum(lengths))) % vocab_size, np.array(lengths, np.int64))
            offset += sum(lengths)
            places = folder / f"{prefix.name}{PLACES_SUFFIX}"
            rows = [
                {
                    "file": f"{name}/{prefix.name}.jsonl",
                    "row": 10 + d,
                    "id": f"{name}-{d}",
                    "hash": hash_of(name, number, d),
                }
                for d in range(len(lengths))
            ]
            pq.write_table(pa.Table.from_pylist(rows, PLACES_SCHEMA), places)
            num_bytes, sha256 = storage.hash_file(str(places))
            files += [*writer.files, FileEntry(path=places.name, bytes=num_bytes, sha256=sha256)]
        names = [f"shard-{number:05d}" for number in range(len(shards))]
        manifest = TokensManifest(
            name=name,
            stage=StageRef(name="tokenize", version=1),
            config={},
            files=tuple(files),
            dtype=dtype_for(vocab_size).name,
            vocab_size=vocab_size,
            padded_vocab_size=vocab_size,
            tokenizer_sha256="0" * 64,
            end_of_document_id=None,
            shards=tuple(names),
        )
        return publish(manifest, str(folder))

    return make


@pytest.fixture
def make_mixture(tmp_path: Path) -> Callable[..., LoadedManifest[MixtureManifest]]:
    """make_mixture({name: (tokens, weight)}, …): a mixture of tokens datasets; its URL opens a MixtureReader.

    `later`: further stages as (first token, weights). `sources`: fields of MixtureSource by name.
    """

    def make(
        parts: dict[str, tuple[LoadedManifest[TokensManifest], int]],
        seed: int = 0,
        validation_share: float = 0.0,
        later: Sequence[tuple[int, Sequence[int]]] = (),
        sources: dict[str, dict[str, Any]] | None = None,
        **fields: Any,
    ) -> LoadedManifest[MixtureManifest]:
        folder = str(tmp_path / "mixture")
        denominator = max(1, sum(weight for _, weight in parts.values()))
        weights = [(0, [weight for _, weight in parts.values()]), *later]
        manifest = MixtureManifest(
            name="mixture",
            stage=StageRef(name="mix", version=1),
            config={},
            inputs=tuple(input_ref(tokens, folder) for tokens, _ in parts.values()),
            sources=tuple(
                MixtureSource(
                    name=name,
                    input=number,
                    documents=0,
                    tokens=sum(shard_tokens(tokens.manifest)),
                    shard_tokens=shard_tokens(tokens.manifest),
                    loss_mask=tokens.manifest.loss_mask,
                    **held_out_fields(tokens, validation_share),
                    **(sources or {}).get(name, {}),
                )
                for number, (name, (tokens, _)) in enumerate(parts.items())
            ),
            stages=tuple(
                MixtureStage(name=f"stage-{number}", first_token=first, weights=tuple(own))
                for number, (first, own) in enumerate(weights)
            ),
            denominator=denominator,
            seed=seed,
            validation_share=validation_share,
            dtype=next(iter(parts.values()))[0].manifest.dtype,
            vocab_size=60_000,
            padded_vocab_size=60_000,
            tokenizer_sha256=next(iter(parts.values()))[0].manifest.tokenizer_sha256,
            end_of_document_id=None,
            **fields,
        )
        return publish(manifest, folder)

    return make


def held_out_fields(tokens: LoadedManifest[TokensManifest], share: float) -> dict[str, Any]:
    """What a mixture says of the held-out documents of a source."""
    if not share:
        return {}
    counts = count_shards(tokens, share, range(len(tokens.manifest.shards)))
    return {"held_out_documents": counts.documents, "held_out_tokens": counts.shard_tokens}


@pytest.fixture
def two_sources(make_tokens: MakeTokens, make_mixture: Callable[..., LoadedManifest[MixtureManifest]]) -> MixtureReader:
    """`code` (weight 1, two shards) and `prose` (weight 3), sequence length 16, some documents held out."""
    code = make_tokens("code", [[100, 20, 0, 90, 30, 160], [24, 243, 1]])
    prose = make_tokens("prose", [[300, 150, 50, 500], [], [100, 200, 150, 50, 7, 493]])
    mixture = make_mixture({"code": (code, 1), "prose": (prose, 3)}, seed=7, validation_share=0.3)
    return MixtureReader.open(mixture.url, 16)


Tokenize = Callable[..., LoadedManifest[TokensManifest]]
PROSE = "The quick brown fox jumps over the lazy dog, and nobody's dog jumps back; it sleeps by the river."


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a byte-level tokenizer of 300 ids, end of document at 0, made by the stage itself."""
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "prose.txt").write_text(PROSE * 20)
    stage = TRAIN.build(TrainTokenizerConfig(vocab_size=300), [str(folder / "prose.txt")], None)
    build_stage(stage, str(folder / "tokenizer"), LocalExecutor(1))
    return folder / "tokenizer"


class Codec:
    """The ids of one text and back, by the tokenizer at `url`."""

    def __init__(self, url: str) -> None:
        self._encoder, self.decode = Encoder(url), Decoder(url).decode

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._encoder.encode(pa.array([text], pa.large_string()))[0].tolist()
        return ids


@pytest.fixture
def codec(tokenizer: Path) -> Codec:
    return Codec(str(tokenizer / "tokenizer.json"))


@pytest.fixture
def tokenize(tmp_path: Path, tokenizer: Path) -> Tokenize:
    """tokenize(name, rows): the tokens of one JSON Lines file `<name>.jsonl`; settings as `TokenizeConfig` has them.

    A row is a text, or an object to be written as it is.

    `inputs` names other INPUTs instead, `out` another folder than `<name>-tokens`.
    """

    def run(
        name: str,
        rows: Sequence[str | dict[str, Any]] = (),
        *,
        inputs: Sequence[Path] = (),
        out: str | None = None,
        workers: int = 1,
        **settings: Any,
    ) -> LoadedManifest[TokensManifest]:
        if not inputs:
            inputs = [tmp_path / f"{name}.jsonl"]
            objects = [
                row if isinstance(row, dict) else {"id": f"{name}-{i}", "text": row} for i, row in enumerate(rows)
            ]
            inputs[0].write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in objects))
        config = TokenizeConfig(**{"tokenizer": str(tokenizer)} | settings)
        stage = TOKENIZE.build(config, [str(path) for path in inputs], name)
        return build_stage(stage, str(tmp_path / (out or f"{name}-tokens")), LocalExecutor(workers)).loaded

    return run


@pytest.fixture
def wide_tokenizer(tmp_path: Path) -> Callable[[int], Path]:
    """wide_tokenizer(size): a tokenizer.json of `size` ids, one a word: `w0`, `w1`, … and `<eos>` with the top id."""

    def write(size: int) -> Path:
        vocabulary = {f"w{number}": number for number in range(size - 1)}
        model = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="w0"))
        model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        model.add_special_tokens(["<eos>"])
        path = tmp_path / f"words-{size}.json"
        model.save(str(path))
        return path

    return write


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def prep(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """prep("mix", …): the command as a shell would run it, in this process."""

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


@pytest.fixture
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task, and so a shard, for every file, however small."""
    monkeypatch.setattr("tokenmill_core.sources.group_pieces", lambda pieces, _: group_pieces(pieces, 1))
