"""Token files of other tools become tokens datasets, without a copy where the layout allows."""

import gzip
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tokenmill_core.build import build_stage
from tokenmill_core.executor import LocalExecutor
from tokenmill_core.lineage import trace_lineage
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, verify_files
from tokenmill_shards import Shard, ShardWriter
from tokenmill_shards.importing import shard as shard_module
from tokenmill_shards.importing.stage import STAGE, ImportTokensConfig
from tokenmill_shards.writing.document_hashes import hash_ids

ImportTokens = Callable[..., LoadedManifest[TokensManifest]]
DOCUMENTS = [[5, 6, 7, 0], [8, 0], [9, 10, 11, 12, 0]]
"""Ids of the small tokenizer, whose end of document is 0."""
FLAT = [id for document in DOCUMENTS for id in document]


@pytest.fixture
def import_tokens(tmp_path: Path, tokenizer: Path) -> ImportTokens:
    """import_tokens("olmo", path, …): the dataset `imported` of these files."""

    def run(
        format: str, *paths: Path, out: str = "imported", workers: int = 1, **settings: Any
    ) -> LoadedManifest[TokensManifest]:
        config = ImportTokensConfig(**{"format": format, "tokenizer": str(tokenizer)} | settings)
        stage = STAGE.build(config, [str(path) for path in paths], None)
        return build_stage(stage, str(tmp_path / out), LocalExecutor(workers)).loaded

    return run


def documents_of(tokens: LoadedManifest[TokensManifest]) -> list[list[int]]:
    shards = [Shard(Path(tokens.folder) / name) for name in tokens.manifest.shards]
    return [shard.document(number).tolist() for shard in shards for number in range(shard.num_documents)]


def places_of(tokens: LoadedManifest[TokensManifest]) -> list[dict[str, Any]]:
    paths = [Path(tokens.folder) / f"{name}.documents.parquet" for name in tokens.manifest.shards]
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def write_ds(path: Path, documents: Sequence[Sequence[int]], size: int = 2) -> Path:
    """As datatrove lays it out: `test_interop` imports what datatrove itself wrote."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flat = [id for document in documents for id in document]
    path.write_bytes(np.array(flat, f"<u{size}").tobytes())
    ends = np.cumsum([len(document) for document in documents])
    path.with_name(path.name + ".index").write_bytes(ends.astype("<u8").tobytes())
    return path


def write_npy(path: Path, ids: Sequence[int], bounds: str | None = None, dtype: str = "<u2") -> Path:
    path.write_bytes(np.array(ids, dtype).tobytes())
    if bounds is not None:
        path.with_name(path.name.removesuffix(".npy") + ".csv.gz").write_bytes(gzip.compress(bounds.encode()))
    return path


def write_llmc(path: Path, ids: Sequence[int], magic: int = 20240520, version: int = 1, dtype: str = "<u2") -> Path:
    header = np.zeros(256, "<i4")
    header[:3] = magic, version, len(ids)
    path.write_bytes(header.tobytes() + np.array(ids, dtype).tobytes())
    return path


def is_linked(tokens: LoadedManifest[TokensManifest], path: Path) -> bool:
    return os.path.samefile(Path(tokens.folder) / "shard-00000.bin", path)


@pytest.mark.parametrize("size", [2, 4])
def test_datatrove_tokens_are_linked_and_its_index_says_the_documents(
    import_tokens: ImportTokens, tmp_path: Path, size: int
) -> None:
    path = write_ds(tmp_path / "a.ds", DOCUMENTS, size)
    tokens = import_tokens("datatrove", path)
    manifest = tokens.manifest
    assert documents_of(tokens) == DOCUMENTS
    assert manifest.dtype == {2: "uint16", 4: "int32"}[size]
    assert is_linked(tokens, path)
    assert (manifest.end_of_document_id, manifest.beginning_of_document_id) == (0, None)
    assert (manifest.counts.documents, manifest.counts.tokens) == (3, 11)
    assert manifest.counts.bytes == manifest.counts.input_bytes == 11 * size
    assert manifest.notes == {}
    verify_files(tokens)


def test_each_document_has_its_place_and_the_hash_of_its_ids(import_tokens: ImportTokens, tmp_path: Path) -> None:
    places = places_of(import_tokens("datatrove", write_ds(tmp_path / "a.ds", DOCUMENTS)))
    hashes = hash_ids(FLAT, [0, 4, 6, 11]).tolist()
    assert places == [
        {"file": "a/a.ds", "row": number + 1, "id": None, "hash": hashes[number]} for number in range(len(DOCUMENTS))
    ]


def test_lineage_leads_to_the_files_and_the_tokenizer(
    import_tokens: ImportTokens, tmp_path: Path, tokenizer: Path
) -> None:
    tokens = import_tokens("datatrove", write_ds(tmp_path / "a.ds", DOCUMENTS))
    assert [(child.kind, child.name) for child in trace_lineage(tokens).inputs] == [
        ("raw", "a"),
        ("tokenizer", "prose"),
    ]
    listed = (Path(tokens.folder) / "raw_files.jsonl").read_text()
    assert '"path":"a.ds"' in listed
    assert '"path":"a.ds.index"' in listed
    assert (Path(tokens.folder) / "tokenizer.json").read_bytes() == (tokenizer / "tokenizer.json").read_bytes()


def test_documents_without_a_token_are_in_the_ledger_and_rows_count_them(
    import_tokens: ImportTokens, tmp_path: Path
) -> None:
    tokens = import_tokens("datatrove", write_ds(tmp_path / "a.ds", [[], [5, 0], [], [6, 0], []]))
    assert documents_of(tokens) == [[5, 0], [6, 0]]
    assert [row["row"] for row in places_of(tokens)] == [2, 4]
    assert [(row.reason, row.documents) for row in tokens.manifest.ledger] == [("no_tokens", 3)]
    assert (tokens.manifest.counts.input_documents, tokens.manifest.end_of_document_id) == (5, 0)


def test_a_document_that_nothing_closes_leaves_the_end_unset_and_is_counted(
    import_tokens: ImportTokens, tmp_path: Path
) -> None:
    manifest = import_tokens("datatrove", write_ds(tmp_path / "a.ds", [[5, 0], [6, 7], [8, 0]])).manifest
    assert manifest.end_of_document_id is None
    assert manifest.notes == {"documents_without_end": 1}


def test_datatroves_loss_is_a_loss_mask(import_tokens: ImportTokens, tmp_path: Path) -> None:
    path = write_ds(tmp_path / "a.ds", DOCUMENTS)
    mask = bytes([0, 1, 1, 1, 0, 1, 0, 0, 1, 1, 1])
    path.with_name("a.ds.loss").write_bytes(mask)
    tokens = import_tokens("datatrove", path)
    assert tokens.manifest.loss_mask
    assert (Path(tokens.folder) / "shard-00000.loss_mask.bin").read_bytes() == mask
    verify_files(tokens)


def test_without_an_index_documents_are_split_behind_each_end(import_tokens: ImportTokens, tmp_path: Path) -> None:
    path = write_ds(tmp_path / "a.ds", DOCUMENTS)
    path.with_name("a.ds.index").unlink()
    assert documents_of(import_tokens("datatrove", path)) == DOCUMENTS


def test_olmo_tokens_with_bounds_have_their_own_ids(import_tokens: ImportTokens, tmp_path: Path) -> None:
    bounds = "0,4,doc-a,web/1.gz,7\n4,6,,web/1.gz,8\n6,11,doc-c,web/1.gz,9\n"
    path = write_npy(tmp_path / "part-0.npy", FLAT, bounds)
    tokens = import_tokens("olmo", path)
    assert documents_of(tokens) == DOCUMENTS
    assert [row["id"] for row in places_of(tokens)] == ["doc-a", "", "doc-c"]
    assert is_linked(tokens, path)
    assert documents_of(import_tokens("olmo", write_npy(path, FLAT, "0,5\n5,11\n"), out="b")) == [FLAT[:5], FLAT[5:]]


def test_olmo_tokens_without_bounds_are_split_behind_each_end(import_tokens: ImportTokens, tmp_path: Path) -> None:
    tokens = import_tokens("olmo", write_npy(tmp_path / "part-0.npy", [*FLAT, 5, 6]))
    assert documents_of(tokens) == [*DOCUMENTS, [5, 6]]
    assert tokens.manifest.notes == {"documents_without_end": 1}


def test_the_type_of_olmo_tokens_is_the_tokenizers_or_as_given(
    import_tokens: ImportTokens, tmp_path: Path, wide_tokenizer: Callable[[int], Path]
) -> None:
    wide = write_npy(tmp_path / "wide.npy", [5, 69_999, 69_998, 69_999], dtype="<u4")
    tokens = import_tokens("olmo", wide, tokenizer=str(wide_tokenizer(70_000)))
    assert (tokens.manifest.dtype, documents_of(tokens)) == ("int32", [[5, 69_999], [69_998, 69_999]])
    given = import_tokens("olmo", write_npy(tmp_path / "x.npy", FLAT, dtype="<u4"), out="given", dtype="uint32")
    assert (given.manifest.dtype, documents_of(given)) == ("int32", DOCUMENTS)


@pytest.mark.parametrize(("magic", "version", "dtype"), [(20240520, 1, "<u2"), (20240801, 7, "<u4")])
def test_llmc_tokens_are_copied_from_behind_the_header_and_open_documents(
    import_tokens: ImportTokens, tmp_path: Path, magic: int, version: int, dtype: str
) -> None:
    path = write_llmc(tmp_path / "train.bin", [0, 5, 6, 0, 0, 7], magic, version, dtype)
    tokens = import_tokens("llmc", path)
    assert documents_of(tokens) == [[0, 5, 6], [0], [0, 7]]
    assert (tokens.manifest.beginning_of_document_id, tokens.manifest.end_of_document_id) == (0, None)
    assert not is_linked(tokens, path)
    before = import_tokens("llmc", write_llmc(path, [9, 0, 5], magic, version, dtype), out="b")
    assert documents_of(before) == [[9], [0, 5]]
    assert before.manifest.beginning_of_document_id is None
    assert before.manifest.notes == {"documents_without_beginning": 1}


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_megatrons_index_is_that_of_ours(import_tokens: ImportTokens, tmp_path: Path, dtype: str) -> None:
    with ShardWriter(tmp_path / "text_document", dtype, 300) as writer:
        writer.append(FLAT, [len(document) for document in DOCUMENTS])
    tokens = import_tokens("megatron", tmp_path / "text_document.bin")
    assert documents_of(tokens) == DOCUMENTS
    assert tokens.manifest.dtype == dtype
    assert is_linked(tokens, tmp_path / "text_document.bin")
    index = Path(tokens.folder) / "shard-00000.idx"
    assert index.read_bytes() == (tmp_path / "text_document.idx").read_bytes()


def test_a_folder_is_read_in_the_order_of_names_by_any_number_of_workers(
    import_tokens: ImportTokens, tmp_path: Path
) -> None:
    for name, document in (("b/x.ds", [6, 0]), ("a.ds", [5, 0]), ("b/w.ds", [7, 0])):
        write_ds(tmp_path / "raw" / name, [document])
    (tmp_path / "raw" / "README").write_text("tokens")
    one, two = (
        import_tokens("datatrove", tmp_path / "raw"),
        import_tokens("datatrove", tmp_path / "raw", out="again", workers=2),
    )
    assert documents_of(one) == [[5, 0], [7, 0], [6, 0]]
    assert [row["file"] for row in places_of(one)] == ["raw/a.ds", "raw/b/w.ds", "raw/b/x.ds"]
    names = sorted(path.name for path in Path(one.folder).iterdir() if path.is_file())
    assert all((Path(one.folder) / n).read_bytes() == (Path(two.folder) / n).read_bytes() for n in names)
    glob = import_tokens("datatrove", tmp_path / "raw" / "b" / "*.ds", out="glob")
    assert documents_of(glob) == [[7, 0], [6, 0]]


def test_documents_larger_and_smaller_than_a_look_at_them(
    import_tokens: ImportTokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [[5] * length + [0] for length in (3, 1, 40, 2, 2, 2, 9)]
    monkeypatch.setattr(shard_module, "CHUNK_TOKENS", 8)
    monkeypatch.setattr("tokenmill_shards.importing.token_file.CHUNK_TOKENS", 8)
    for format, path in (
        ("datatrove", write_ds(tmp_path / "a.ds", documents)),
        ("olmo", write_npy(tmp_path / "a.npy", [id for document in documents for id in document])),
    ):
        tokens = import_tokens(format, path, out=format)
        assert documents_of(tokens) == documents
        offsets = np.cumsum([0, *map(len, documents)])
        hashes = hash_ids([id for document in documents for id in document], offsets)
        assert [row["hash"] for row in places_of(tokens)] == hashes.tolist()


def test_a_file_system_without_links_gets_copies_and_says_so(
    import_tokens: ImportTokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_ds(tmp_path / "a.ds", DOCUMENTS)
    linked = import_tokens("datatrove", path)

    def refuse(*_: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    copied = import_tokens("datatrove", path, out="copied")
    assert "a.ds is copied, for it cannot be linked to: Invalid cross-device link" in caplog.text
    assert not is_linked(copied, path)
    assert copied.manifest == linked.manifest


def test_a_symbolic_link_is_followed(import_tokens: ImportTokens, tmp_path: Path) -> None:
    path = write_ds(tmp_path / "blobs" / "f00", DOCUMENTS)
    (tmp_path / "a.ds").symlink_to(path)
    (tmp_path / "a.ds.index").symlink_to(path.with_name("f00.index"))
    tokens = import_tokens("datatrove", tmp_path / "a.ds")
    assert is_linked(tokens, path)
    assert not (Path(tokens.folder) / "shard-00000.bin").is_symlink()
    verify_files(tokens)
