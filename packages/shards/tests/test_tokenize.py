"""The tokenize stage: shards hold the ids of every document, closed as the manifest says, and lead back to raw rows."""

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from tokenmill_core import storage
from tokenmill_core.build import build_stage
from tokenmill_core.documents import DOCUMENT_SCHEMA
from tokenmill_core.errors import InputError
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.manifest import DocumentsManifest, FileEntry, StageRef, TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, publish, verify_files
from tokenmill_core.storage import hash_file
from tokenmill_core.verify import find_problems
from tokenmill_shards import MixtureReader, Shard, ShardStore, TokenStream
from tokenmill_shards.formats.places import read_place
from tokenmill_shards.mixing.mix import STAGE as MIX
from tokenmill_shards.mixing.mix import MixConfig

Tokenize = Callable[..., LoadedManifest[TokensManifest]]
TEXTS = ["The quick brown fox.", "use <|endoftext|> here", "<|endoftext|>", "日本語 👨‍👩‍👧‍👦\r\n", "x", "a\tb\n\n\n"]


def documents_of(tokens: LoadedManifest[TokensManifest]) -> Iterator[list[int]]:
    """The ids of each document, over all shards."""
    for name in tokens.manifest.shards:
        shard = Shard(Path(tokens.folder) / name)
        for number in range(shard.num_documents):
            yield shard.document(number).tolist()


def places_of(tokens: LoadedManifest[TokensManifest]) -> list[dict[str, Any]]:
    paths = [Path(tokens.folder) / f"{name}.documents.parquet" for name in tokens.manifest.shards]
    tables = [pq.read_table(path, columns=["file", "row", "id"]) for path in paths]
    return [row for table in tables for row in table.to_pylist()]


def read_all(tokens: LoadedManifest[TokensManifest]) -> list[int]:
    """The ids of the whole dataset, as its stream gives them."""
    stream = TokenStream.whole(ShardStore.open(tokens.url))
    ids = np.empty(stream.num_tokens, np.int64)
    stream.read_into(ids, 0)
    return ids.tolist()


def content_of(tokens: LoadedManifest[TokensManifest]) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(tokens.folder).iterdir()}


def test_documents_read_back_as_they_encode_closed_by_the_end_id(tokenize: Tokenize, codec: Any) -> None:
    tokens = tokenize("a", TEXTS)
    documents = list(documents_of(tokens))
    assert documents == [[*codec.encode(text), 0] for text in TEXTS]
    assert [codec.decode(ids[:-1]) for ids in documents] == TEXTS
    assert sum(ids.count(0) for ids in documents) == len(TEXTS)
    assert tokens.manifest.end_of_document_id == 0
    verify_files(tokens)


def test_documents_stay_open_on_request_and_the_manifest_says_so(tokenize: Tokenize, codec: Any) -> None:
    tokens = tokenize("a", TEXTS, append_end_of_document=False)
    assert list(documents_of(tokens)) == [codec.encode(text) for text in TEXTS]
    assert tokens.manifest.end_of_document_id is None


@pytest.mark.parametrize("closed", [True, False])
def test_counts_are_those_of_files_and_ledger(tokenize: Tokenize, tmp_path: Path, closed: bool) -> None:
    raw = tmp_path / "raw.jsonl"
    raw.write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in TEXTS) + b'42\n{"text":""}\n\n')
    tokens = tokenize("raw", inputs=[raw], append_end_of_document=closed)
    counts = tokens.manifest.counts
    assert counts.documents == len(TEXTS)
    assert counts.input_documents == len(TEXTS) + 2
    assert counts.bytes == sum(len(text.encode()) for text in TEXTS)
    assert counts.tokens == sum(map(len, documents_of(tokens)))
    assert {row.reason: row.documents for row in tokens.manifest.ledger} == {"empty_text": 1, "not_an_object": 1}
    entry = next(entry for entry in tokens.manifest.files if entry.path.endswith(".bin"))
    assert (entry.documents, entry.tokens, entry.bytes) == (len(TEXTS), counts.tokens, 2 * counts.tokens)
    assert (tokens.manifest.dtype, tokens.manifest.vocab_size) == ("uint16", 300)


def test_places_lead_to_the_raw_line_of_every_document(
    tokenize: Tokenize, tmp_path: Path, codec: Any, many_tasks: None
) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    lines = [orjson.dumps({"id": i, "text": f"document {i}"}) for i in range(9)]
    (folder / "a.jsonl").write_bytes(b"\n".join([lines[0], b"", b"42", lines[1], lines[2]]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines[3:5])))
    (folder / "c.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(b"\n".join([b"{", *lines[5:7]])))
    pq.write_table(pa.Table.from_pylist([orjson.loads(line) for line in lines[7:]]), folder / "d.parquet")
    tokens = tokenize("raw", inputs=[folder])
    places = places_of(tokens)
    assert [(p["file"], p["row"]) for p in places] == [
        *(("raw/a.jsonl", 1), ("raw/a.jsonl", 4), ("raw/a.jsonl", 5)),
        *(("raw/b.jsonl.gz", 1), ("raw/b.jsonl.gz", 2), ("raw/c.jsonl.zst", 2), ("raw/c.jsonl.zst", 3)),
        *(("raw/d.parquet", 1), ("raw/d.parquet", 2)),
    ]
    for ids, place in zip(documents_of(tokens), places, strict=True):
        row = raw_row(tmp_path / place["file"], place["row"])
        assert (str(row["id"]), row["text"]) == (place["id"], codec.decode(ids[:-1]))


def raw_row(path: Path, number: int) -> dict[str, Any]:
    """Row `number`, from 1, of a raw file."""
    if path.suffix == ".parquet":
        return dict(pq.read_table(path).to_pylist()[number - 1])
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    if path.suffix == ".zst":
        content = zstandard.ZstdDecompressor().decompressobj().decompress(content)
    return dict(json.loads(content.split(b"\n")[number - 1]))


def test_a_token_leads_to_its_document_across_shards(tokenize: Tokenize, tmp_path: Path, many_tasks: None) -> None:
    paths = [tmp_path / f"{n}.jsonl" for n in range(3)]
    for n, path in enumerate(paths):
        path.write_bytes(
            b"".join(orjson.dumps({"id": f"{n}-{i}", "text": "word " * (i + 1)}) + b"\n" for i in range(4))
        )
    tokens = tokenize("t", inputs=paths)
    assert tokens.manifest.shards == ("shard-00000", "shard-00001", "shard-00002")
    stream, offset = TokenStream.whole(ShardStore.open(tokens.url)), 0
    for number, ids in enumerate(documents_of(tokens)):
        for _ in ids:
            (piece,) = stream.overlapping(offset, offset + 1)
            place = stream.place(piece.shard, piece.document)
            assert (place.id, place.file, place.row) == (
                f"{number // 4}-{number % 4}",
                f"{number // 4}/{number // 4}.jsonl",
                number % 4 + 1,
            )
            offset += 1
    assert offset == stream.num_tokens == tokens.manifest.counts.tokens
    path = Path(tokens.folder) / "shard-00001.documents.parquet"
    assert [read_place(path, document).id for document in range(4)] == [f"1-{i}" for i in range(4)]


def test_workers_and_the_order_of_arguments_change_nothing(
    tokenize: Tokenize, tmp_path: Path, many_tasks: None
) -> None:
    paths = [tmp_path / f"{n}.jsonl" for n in range(4)]
    for n, path in enumerate(paths):
        path.write_bytes(b"".join(orjson.dumps({"text": f"{text} {n}"}) + b"\n" for text in TEXTS) + b"[]\n")
    one = tokenize("t", inputs=paths, out="one")
    two = tokenize("t", inputs=paths[::-1], out="two", workers=2)
    assert content_of(one) == content_of(two)
    assert len(one.manifest.shards) == 4


def test_documents_of_a_manifest_are_tokenized_like_raw_ones(tokenize: Tokenize, tmp_path: Path, codec: Any) -> None:
    folder = tmp_path / "clean"
    folder.mkdir()
    rows = [{"id": f"n{i}", "text": t, "file": "old/raw.jsonl", "row": 7 * i + 1} for i, t in enumerate(TEXTS)]
    write_parquet(folder, rows)
    documents = published(folder)
    tokens = tokenize("docs", inputs=[folder])
    raw = tokenize("raw", TEXTS)
    assert list(documents_of(tokens)) == list(documents_of(raw))
    assert places_of(tokens) == [{key: row[key] for key in ("file", "row", "id")} for row in rows]
    assert tokens.manifest.inputs[0].digest == documents.manifest.digest
    assert storage.hash_file(tokens.file_url("tokenizer.json"))[1] == tokens.manifest.tokenizer_sha256


def write_parquet(folder: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows, DOCUMENT_SCHEMA), folder / "part-00000.parquet")


def published(folder: Path) -> LoadedManifest[DocumentsManifest]:
    """A documents manifest for the Parquet file in `folder`."""
    num_bytes, sha256 = hash_file(str(folder / "part-00000.parquet"))
    documents = pq.read_metadata(folder / "part-00000.parquet").num_rows
    entry = FileEntry(path="part-00000.parquet", bytes=num_bytes, sha256=sha256, documents=documents)
    stage = StageRef(name="clean", version=1)
    return publish(DocumentsManifest(name="docs", stage=stage, config={}, files=(entry,)), str(folder))


def test_raw_and_cleaned_documents_can_be_tokenized_together(tokenize: Tokenize, tmp_path: Path) -> None:
    folder = tmp_path / "clean"
    folder.mkdir()
    row = {"id": None, "text": "clean one", "file": "old/x", "row": 3}
    write_parquet(folder, [row])
    published(folder)
    (tmp_path / "raw.jsonl").write_bytes(b'{"text":"raw one"}\n')
    tokens = tokenize("both", inputs=[folder, tmp_path / "raw.jsonl"])
    assert [(p["file"], p["row"]) for p in places_of(tokens)] == [("raw/raw.jsonl", 1), ("old/x", 3)]


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 70_000])
def test_the_top_id_of_any_vocabulary_is_stored(
    tokenize: Tokenize, wide_tokenizer: Callable[[int], Path], size: int
) -> None:
    """The base vocabulary may fit a narrow type while the specials above it do not."""
    tokens = tokenize("w", [f"w{size - 2} w0 w7"], tokenizer=str(wide_tokenizer(size)))
    assert tokens.manifest.dtype == ("uint16" if size <= 65_536 else "int32")
    assert list(documents_of(tokens)) == [[size - 2, 0, 7, size - 1]]
    assert (tokens.manifest.end_of_document_id, tokens.manifest.vocab_size) == (size - 1, size)
    assert read_all(tokens) == [size - 2, 0, 7, size - 1]


def test_a_tokenizer_without_an_end_token_is_refused_at_the_start(
    tokenize: Tokenize, tmp_path: Path, wide_tokenizer: Callable[[int], Path]
) -> None:
    path = tmp_path / "bare.json"
    path.write_text(wide_tokenizer(300).read_text().replace("<eos>", "<bar>"))
    with pytest.raises(InputError, match=r"bare\.json: no token .*--end-of-document.*--no-end-of-document"):
        tokenize("a", ["w1"], tokenizer=str(path))
    assert not (tmp_path / "a-tokens").exists()
    assert list(documents_of(tokenize("a", ["w1"], tokenizer=str(path), end_of_document="<bar>"))) == [[1, 299]]
    open_ended = tokenize("b", ["w1"], tokenizer=str(path), append_end_of_document=False)
    assert (list(documents_of(open_ended)), open_ended.manifest.end_of_document_id) == ([[1]], None)
    with pytest.raises(InputError, match="no token '<baz>'"):
        tokenize("c", ["w1"], tokenizer=str(path), end_of_document="<baz>")


def test_a_document_without_tokens_is_dropped_and_the_others_end_once(tokenize: Tokenize, tmp_path: Path) -> None:
    """A tokenizer may give nothing for a text."""
    path = tmp_path / "strip.json"
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.normalizer = normalizers.Replace("nothing", "")
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<eos>"])
    tokenizer.save(str(path))
    texts = ["nothing", "b", "b a b", "nothing"]
    closed = tokenize("closed", texts, tokenizer=str(path))
    assert list(documents_of(closed)) == [[1, 2], [1, 0, 1, 2]]
    opened = tokenize("open", texts, tokenizer=str(path), append_end_of_document=False)
    assert list(documents_of(opened)) == [[1], [1, 0, 1]]
    for tokens in (closed, opened):
        counts = tokens.manifest.counts
        assert (counts.input_documents, counts.documents, counts.bytes) == (4, 2, len("bb a b"))
        assert [tuple(row.model_dump().values()) for row in tokens.manifest.ledger] == [("no_tokens", 2, 14)]
        assert [place["row"] for place in places_of(tokens)] == [2, 3]
        rejects = [json.loads(line) for line in Path(tokens.file_url("rejects.jsonl")).read_text().splitlines()]
        assert [(row["row"], row["reason"], row["raw"]) for row in rejects] == [
            (1, "no_tokens", "nothing"),
            (4, "no_tokens", "nothing"),
        ]
    with pytest.raises(InputError, match=r"strict/strict\.jsonl:1: no_tokens, at b'nothing'; mend it, or leave out"):
        tokenize("strict", texts, tokenizer=str(path), reader={"strict": True})


def test_nothing_to_tokenize_is_a_dataset_without_shards(tokenize: Tokenize, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    tokens = tokenize("empty", inputs=[tmp_path / "empty.jsonl"])
    assert tokens.manifest.shards == ()
    assert tokens.manifest.counts.tokens == 0
    assert TokenStream.whole(ShardStore.open(tokens.url)).num_tokens == 0


def test_a_tokenizer_that_moved_is_the_same_and_another_one_is_not(
    tokenize: Tokenize, tmp_path: Path, tokenizer: Path
) -> None:
    """What decides is the tokenizer's digest, not where it lies."""
    first = tokenize("a", TEXTS)
    moved = shutil.copytree(tokenizer, tmp_path / "elsewhere" / "tokenizer")
    again = tokenize("a", TEXTS, tokenizer=str(moved), out="again")
    assert again.manifest.digest == first.manifest.digest
    bare = tokenize("a", TEXTS, tokenizer=str(shutil.copy(tokenizer / "tokenizer.json", tmp_path)), out="bare")
    assert bare.manifest.tokenizer_sha256 == first.manifest.tokenizer_sha256
    assert list(documents_of(bare)) == list(documents_of(first))


def test_raw_files_called_like_the_tokenizer_do_not_mix_with_it(
    tokenize: Tokenize, tmp_path: Path, tokenizer: Path
) -> None:
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "a.jsonl").write_bytes(b'{"text":"x"}\n')
    bare = shutil.copy(tokenizer / "tokenizer.json", tmp_path / "tokenizer.json")
    tokens = tokenize("t", inputs=[tmp_path / "tokenizer"], tokenizer=str(bare))
    assert len({ref.name for ref in tokens.manifest.inputs}) == 2
    assert find_problems(tokens, inputs=True) == []


def test_tokens_go_into_a_mixture_that_reads_them(tokenize: Tokenize, tmp_path: Path) -> None:
    tokens = tokenize("a", ["The quick brown fox jumps over the lazy dog. " * 20])
    stage = MIX.build(MixConfig(), [f"a={tokens.folder}"], None)
    build_stage(stage, str(tmp_path / "mixture.json"), LocalExecutor(1))
    reader = MixtureReader.open(str(tmp_path / "mixture.json"), 16)
    stream = [id for ids in documents_of(tokens) for id in ids]
    windows = reader.mixture.locate(np.arange(5)).window.tolist()
    for row, window in zip(reader.samples(np.arange(5)).tokens.tolist(), windows, strict=True):
        assert row == stream[window * 16 : window * 16 + 17]
