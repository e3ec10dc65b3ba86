"""How `tokenize` cuts documents into shards, what stands around and beside them, and which engine wrote them."""

import gzip
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenmill_core.errors import InputError, VerificationError
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest
from tokenmill_shards import Shard, ShardStore, TokenStream
from tokenmill_shards.writing import shard_files
from tokenmill_shards.writing.shard_check import check_shard
from tokenmill_shards.writing.shard_files import ShardFiles
from tokenmill_shards.writing.tokenize import TokenizeConfig

Tokenize = Callable[..., LoadedManifest[TokensManifest]]
FRUGAL = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def shards_of(tokens: LoadedManifest[TokensManifest]) -> list[list[list[int]]]:
    """The ids of each document of each shard."""
    shards = [Shard(Path(tokens.folder) / name) for name in tokens.manifest.shards]
    return [[shard.document(number).tolist() for number in range(shard.num_documents)] for shard in shards]


def content_of(tokens: LoadedManifest[TokensManifest]) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(tokens.folder).iterdir()}


# Sizes


@FRUGAL
@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=30), shard_bytes=st.integers(1, 60))
def test_a_shard_ends_with_the_document_that_fills_it(
    tokenize: Tokenize, codec: Any, tmp_path: Path, sizes: list[int], shard_bytes: int
) -> None:
    """In one task, as a compressed file cannot be cut into several."""
    texts = ["x" * size for size in sizes]
    (tmp_path / "sized.jsonl.gz").write_bytes(gzip.compress(b"\n".join(orjson.dumps({"text": text}) for text in texts)))
    tokens = tokenize("sized", inputs=[tmp_path / "sized.jsonl.gz"], shard_bytes=shard_bytes)
    expected: list[list[list[int]]] = []
    filled = shard_bytes
    for text in texts:
        if filled >= shard_bytes:
            expected.append([])
            filled = 0
        expected[-1].append([*codec.encode(text), 0])
        filled += len(text)
    assert shards_of(tokens) == expected
    assert list(tokens.manifest.shards) == sorted(tokens.manifest.shards)


def test_one_task_writes_as_many_shards_as_its_text_fills(tokenize: Tokenize, tmp_path: Path) -> None:
    lines = [orjson.dumps({"id": str(n), "text": "x" * 10}) for n in range(25)]
    (tmp_path / "z.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(b"\n".join(lines)))
    tokens = tokenize("z", inputs=[tmp_path / "z.jsonl.zst"], shard_bytes=95)
    assert tokens.manifest.shards == ("shard-00000", "shard-00000_0001", "shard-00000_0002")
    assert [len(shard) for shard in shards_of(tokens)] == [10, 10, 5]
    names = [path.name for path in sorted(Path(tokens.folder).glob("*.bin"))]
    assert names == [f"{shard}.bin" for shard in tokens.manifest.shards]
    stream = TokenStream.whole(ShardStore.open(tokens.url))
    per_document = len(shards_of(tokens)[0][0])
    for number in range(25):
        (piece,) = stream.overlapping(number * per_document, number * per_document + 1)
        place = stream.place(piece.shard, piece.document)
        assert (place.id, place.row, piece.document) == (str(number), number + 1, number % 10)


def test_small_files_share_a_task_and_its_size_follows_the_shards(tokenize: Tokenize, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for n in range(8):
        (tmp_path / "raw" / f"{n}.jsonl").write_bytes(orjson.dumps({"text": "x" * 86}) + b"\n")
    assert (tmp_path / "raw" / "0.jsonl").stat().st_size == 98
    for shard_bytes, tasks in ((256_000_000, 1), (4 * 200, 4), (4 * 98, 8)):
        tokens = tokenize("raw", inputs=[tmp_path / "raw"], shard_bytes=shard_bytes, out=f"out{tasks}")
        assert len({name.split("_")[0] for name in tokens.manifest.shards}) == tasks


def test_shards_do_not_depend_on_workers_or_on_who_was_there_before(tokenize: Tokenize, tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.jsonl" for n in range(4)]
    for n, path in enumerate(paths):
        rows = [{"text": f"word {n} " * (i + 1), "m": [[0, 3]], "source": f"s{i}"} for i in range(9)]
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    settings = {"shard_bytes": 200, "loss_mask": "m", "reader": {"carry": ("source",)}}
    one = tokenize("t", inputs=paths, out="one", **settings)
    two = tokenize("t", inputs=paths[::-1], out="two", workers=2, **settings)
    assert content_of(one) == content_of(two)
    assert len(one.manifest.shards) > 4
    changed = tokenize("t", inputs=paths, out="one", **settings | {"shard_bytes": 150})
    assert sorted(content_of(changed)) == sorted(
        content_of(tokenize("t", inputs=paths, out="fresh", **settings | {"shard_bytes": 150}))
    )


# Boundaries


def test_documents_are_opened_on_request_and_the_manifest_says_so(tokenize: Tokenize, codec: Any) -> None:
    texts = ["The quick", "brown <|endoftext|> fox"]
    settings = {"prepend_beginning_of_document": True, "beginning_of_document": "<|endoftext|>"}
    both = tokenize("both", texts, **settings)
    assert shards_of(both) == [[[0, *codec.encode(text), 0] for text in texts]]
    assert (both.manifest.beginning_of_document_id, both.manifest.end_of_document_id) == (0, 0)
    opened = tokenize("opened", texts, append_end_of_document=False, **settings)
    assert shards_of(opened) == [[[0, *codec.encode(text)] for text in texts]]
    assert (opened.manifest.beginning_of_document_id, opened.manifest.end_of_document_id) == (0, None)
    assert tokenize("neither", texts).manifest.beginning_of_document_id is None


def test_a_beginning_that_is_not_there_is_refused(tokenize: Tokenize, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"no token to begin a document with; name one .*--beginning-of-document TOKEN"
    ):
        tokenize("a", ["one"], prepend_beginning_of_document=True)
    with pytest.raises(InputError, match="no token '<s>' to begin a document with"):
        tokenize("a", ["one"], prepend_beginning_of_document=True, beginning_of_document="<s>")
    assert not (tmp_path / "a-tokens").exists()
    with pytest.raises(ValueError, match="beginning_of_document is '<s>', but prepend_beginning_of_document is false"):
        TokenizeConfig(tokenizer="t", beginning_of_document="<s>")


def test_special_text_becomes_special_ids_only_where_that_is_allowed(tokenize: Tokenize, codec: Any) -> None:
    texts = ["one<|endoftext|>two"]
    plain = tokenize("plain", texts)
    assert shards_of(plain)[0][0].count(0) == 1
    allowed = tokenize("allowed", texts, allow_special=True)
    assert shards_of(allowed) == [[[*codec.encode("one"), 0, *codec.encode("two"), 0]]]
    assert plain.manifest.config["allow_special"] is False
    assert allowed.manifest.config["allow_special"] is True


# Engines


def test_the_engine_is_written_down_and_changes_nothing_else(tokenize: Tokenize) -> None:
    texts = ["The quick brown fox.", "日本語 👩"]
    made = {engine: tokenize("a", texts, engine=engine, out=engine) for engine in ("gigatoken", "tokenizers", "auto")}
    used = {engine: tokens.manifest.engines["shard-00000"].split()[0] for engine, tokens in made.items()}
    assert used == {"gigatoken": "gigatoken", "tokenizers": "tokenizers", "auto": "gigatoken"}
    assert len({tokens.manifest.digest for tokens in made.values()}) == 1
    assert all("engine" not in tokens.manifest.config for tokens in made.values())
    bins = [content_of(tokens)["shard-00000.bin"] for tokens in made.values()]
    assert bins[0] == bins[1] == bins[2]
    again = tokenize("a", texts, engine="tokenizers", out="auto")
    assert again.manifest.engines == made["auto"].manifest.engines, "up to date, whatever engine is asked for"


# Carried columns


def test_carried_columns_stand_beside_the_places(tokenize: Tokenize) -> None:
    rows = [{"text": "one", "url": "u1", "meta": {"b": 1, "a": [2]}}, {"text": "two"}, {"text": "three", "url": 3}]
    tokens = tokenize("a", rows, reader={"carry": ("url", "meta")})
    table = pq.read_table(tokens.file_url("shard-00000.documents.parquet")).to_pylist()
    assert [(row["row"], row["url"], row["meta"]) for row in table] == [
        (1, "u1", '{"a":[2],"b":1}'),
        (2, None, None),
        (3, "3", None),
    ]
    assert ShardStore.open(tokens.url).place(0, 0).row == 1


def test_a_carried_column_that_no_document_has_is_warned_of(
    tokenize: Tokenize, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        tokenize("a", [{"text": "one", "url": "u"}], reader={"carry": ("url", "urll")})
    assert [record.message for record in caplog.records] == ["--carry urll: no document has a value there"]


# Checks on close


def flip(path: Path, place: int, value: bytes) -> None:
    content = bytearray(path.read_bytes())
    place %= len(content)
    content[place : place + len(value)] = value
    path.write_bytes(content)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "id": (
        lambda folder: flip(folder / "shard-00000.bin", 0, b"\xff\xff"),
        "ids from 0 to 65535, but its vocabulary has 300",
    ),
    "end": (lambda folder: flip(folder / "shard-00000.bin", -2, b"\x07\x00"), "documents that end with 0: 2, but 3"),
    "inner end": (lambda folder: flip(folder / "shard-00000.bin", 2, b"\0\0"), "4 times the id 0.* they need 3"),
    "cut": (lambda folder: os.truncate(folder / "shard-00000.bin", 10), "has 10 bytes, but its index"),
    "lengths": (lambda folder: flip(folder / "shard-00000.idx", 34, b"\x01"), "damaged"),
    "mask size": (
        lambda folder: os.truncate(folder / "shard-00000.loss_mask.bin", 3),
        "bytes of loss mask: 3, but .* needed",
    ),
    "mask value": (lambda folder: flip(folder / "shard-00000.loss_mask.bin", 0, b"\2"), "a loss mask with the value 2"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_the_disk_holds_otherwise_is_found_when_a_shard_is_closed(
    tokenize: Tokenize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A disk that loses writes, between a file taking its name and being read back."""
    damage, message = DAMAGE[what]

    def damaged_first(prefix: Path, *rest: Any) -> None:
        damage(prefix.parent)
        check_shard(prefix, *rest)

    monkeypatch.setattr(shard_files, "check_shard", damaged_first)
    rows = [{"text": text, "m": True} for text in ("one two", "three", "four")]
    with pytest.raises(VerificationError, match=rf"shard-00000.*{message}"):
        tokenize("a", rows, loss_mask="m")
    assert not (tmp_path / "a-tokens" / "manifest.json").exists()
    monkeypatch.undo()
    assert content_of(tokenize("a", rows, loss_mask="m")) == content_of(tokenize("a", rows, loss_mask="m", out="fresh"))


def test_an_error_half_way_leaves_no_file_of_the_open_shard(
    tokenize: Tokenize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = ShardFiles.append

    def failing(self: ShardFiles, encoded: Any) -> None:
        append(self, encoded)
        if len(written) == 2:
            raise InputError("the disk is full")
        written.append(encoded)

    written: list[Any] = []
    monkeypatch.setattr(ShardFiles, "append", failing)
    rows = [{"text": "x" * 10, "m": True} for _ in range(9)]
    with pytest.raises(InputError, match="the disk is full"):
        tokenize("a", rows, loss_mask="m", shard_bytes=10)
    left = [path.name for path in (tmp_path / "a-tokens").rglob("*") if path.is_file() and "shard" in path.name]
    assert len({name.split(".")[0] for name in left}) == 2
    assert not any(name.startswith(".") for name in left)


def test_rows_rejected_for_their_text_and_their_mask_are_one_list(tokenize: Tokenize, tmp_path: Path) -> None:
    lines = [b'{"text":""}', b'{"text":"one","m":7}', b"42", b'{"text":"two","m":true}']
    (tmp_path / "r.jsonl").write_bytes(b"\n".join(lines))
    tokens = tokenize("r", inputs=[tmp_path / "r.jsonl"], loss_mask="m")
    rejects = [json.loads(line) for line in Path(tokens.file_url("rejects.jsonl")).read_text().splitlines()]
    assert sorted((row["row"], row["reason"]) for row in rejects) == [
        (1, "empty_text"),
        (2, "invalid_loss_mask"),
        (3, "not_an_object"),
    ]
    assert tokens.manifest.counts.input_documents == 4
    assert np.fromfile(tokens.file_url("shard-00000.loss_mask.bin"), np.uint8).all()
