"""What `prep verify` finds in tokens whose checksums are right: what was written was wrong from the start."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill_core import storage
from tokenmill_core.manifest import FileEntry, TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, load_manifest, publish
from tokenmill_core.verify import Checked, find_problems
from tokenmill_shards.audit import token_checks

Tokenize = Callable[..., LoadedManifest[TokensManifest]]
Change = Callable[[Path], None]
ROWS = [{"text": text, "m": True} for text in ("one two", "three", "four")]


@pytest.fixture
def tokens(tokenize: Tokenize) -> LoadedManifest[TokensManifest]:
    settings = {"prepend_beginning_of_document": True, "beginning_of_document": "<|endoftext|>"}
    return tokenize("a", ROWS, loss_mask="m", **settings)


def vouched(loaded: LoadedManifest[TokensManifest], **fields: Any) -> LoadedManifest[TokensManifest]:
    """The dataset as it lies there now, with a manifest that vouches for it."""

    def entry(old: FileEntry) -> FileEntry:
        num_bytes, sha256 = storage.hash_file(loaded.file_url(old.path))
        return old.model_copy(update={"bytes": num_bytes, "sha256": sha256})

    fields = {"files": tuple(entry(old) for old in loaded.manifest.files)} | fields
    return publish(loaded.manifest.model_copy(update=fields), loaded.folder)


def set_token(place: int, id: int) -> Change:
    def change(folder: Path) -> None:
        ids = np.fromfile(folder / "shard-00000.bin", "<u2")
        ids[place] = id
        ids.tofile(folder / "shard-00000.bin")

    return change


def set_mask(place: int, value: int) -> Change:
    def change(folder: Path) -> None:
        mask = np.fromfile(folder / "shard-00000.loss_mask.bin", np.uint8)
        mask[place] = value
        mask.tofile(folder / "shard-00000.loss_mask.bin")

    return change


def cut(suffix: str, num_bytes: int) -> Change:
    def change(folder: Path) -> None:
        path = folder / f"shard-00000{suffix}"
        os.truncate(path, path.stat().st_size - num_bytes)

    return change


def set_places(edit: Callable[[Any], Any]) -> Change:
    def change(folder: Path) -> None:
        path = folder / "shard-00000.documents.parquet"
        pq.write_table(edit(pq.read_table(path)), path)

    return change


def set_hashes(hashes: list[int]) -> Change:
    def edit(table: Any) -> Any:
        place = table.schema.get_field_index("hash")
        return table.set_column(place, table.schema.field(place), pa.array(hashes, pa.uint64()))

    return set_places(edit)


def spoil_places(folder: Path) -> None:
    (folder / "shard-00000.documents.parquet").write_bytes(b"no parquet")


DAMAGE: dict[str, tuple[Change, str]] = {
    "id": (set_token(2, 300), "has ids from 0 to 300, but its vocabulary has 300; tokenize again"),
    "begin": (set_token(0, 7), "documents that begin with 0: 2, but 3 are needed"),
    "end": (set_token(-1, 7), "documents that end with 0: 2, but 3 are needed"),
    "inner end": (set_token(2, 0), "has 7 times the id 0, which begins or ends documents, but they need 6"),
    "data": (cut(".bin", 2), "shard-00000.bin has .* bytes, but its index"),
    "index": (cut(".idx", 8), "shard-00000.idx is damaged"),
    "mask size": (cut(".loss_mask.bin", 1), "bytes of loss mask"),
    "mask value": (set_mask(2, 7), "a loss mask with the value 7, but only 0 and 1"),
    "mask begin": (set_mask(0, 1), "a loss mask in which a token that opens a document counts"),
    "rows": (set_places(lambda table: table.slice(1)), "rows of places: 2, but 3 are needed"),
    "hash": (set_places(lambda table: table.drop_columns(["hash"])), "places without hash"),
    "even hash": (set_hashes([1, 3, 4]), "the hash of document 2 is 4, but all are odd"),
    "hashes alike": (set_hashes([1, 1, 1]), "documents 0 and 1 have the same hash, but .* and .* tokens"),
    "places": (spoil_places, "shard-00000: its places cannot be read"),
}


def test_what_is_whole_has_no_problem_and_is_counted(tokens: LoadedManifest[TokensManifest]) -> None:
    checked = Checked()
    assert find_problems(tokens, checked=checked) == []
    files, counts = tokens.manifest.files, tokens.manifest.counts
    assert (checked.files, checked.bytes) == (len(files), sum(entry.bytes for entry in files))
    assert (checked.documents, checked.tokens) == (3, counts.tokens)


@pytest.mark.parametrize("what", DAMAGE)
def test_content_that_its_checksum_vouches_for_is_named(tokens: LoadedManifest[TokensManifest], what: str) -> None:
    change, message = DAMAGE[what]
    change(Path(tokens.folder))
    found = find_problems(vouched(tokens))
    assert found
    for problem in found:
        assert problem.startswith(f"{tokens.folder}/shard-00000")
    assert any(re.search(message, problem) for problem in found), found


def test_every_problem_of_a_shard_is_named(tokens: LoadedManifest[TokensManifest]) -> None:
    for what in ("id", "end", "mask value", "hash"):
        DAMAGE[what][0](Path(tokens.folder))
    # The end that is missing is also missing among all tokens of its kind.
    assert len(find_problems(vouched(tokens))) == 5


def test_a_file_that_is_not_the_one_vouched_for_is_named_once(tokens: LoadedManifest[TokensManifest]) -> None:
    set_token(2, 300)(Path(tokens.folder))
    (problem,) = find_problems(tokens)
    assert "sha256 is" in problem


def test_a_manifest_that_counts_otherwise_is_named(tokens: LoadedManifest[TokensManifest]) -> None:
    manifest = tokens.manifest
    counts = manifest.counts.model_copy(update={"tokens": manifest.counts.tokens + 1})
    (problem,) = find_problems(vouched(tokens, counts=counts))
    assert f"counts.tokens is {counts.tokens}, but its shards have {counts.tokens - 1}" in problem
    (problem,) = find_problems(vouched(tokens, tokenizer_sha256="0" * 64))
    assert "tokenizer_sha256 is 000000000000…, but its tokenizer.json has" in problem
    (problem,) = find_problems(vouched(tokens, dtype="int32"))
    assert "token type: uint16, but int32 are needed" in problem
    assert (
        "names the shard no-such, but lists no file no-such.bin"
        in find_problems(vouched(tokens, shards=("no-such",)))[0]
    )


@pytest.mark.parametrize("suffix", [".idx", ".documents.parquet", ".loss_mask.bin"])
def test_a_file_that_the_manifest_does_not_vouch_for_is_named(
    tokens: LoadedManifest[TokensManifest], suffix: str
) -> None:
    files = tuple(entry for entry in tokens.manifest.files if entry.path != f"shard-00000{suffix}")
    (problem,) = find_problems(vouched(tokens, files=files))
    assert f"it names the shard shard-00000, but lists no file shard-00000{suffix}" in problem


def test_masks_without_a_word_of_them_are_named(tokens: LoadedManifest[TokensManifest]) -> None:
    (problem,) = find_problems(vouched(tokens, loss_mask=False))
    assert "loss_mask is false, but it lists shard-00000.loss_mask.bin" in problem


def test_shards_in_another_order_are_named(make_tokens: Callable[..., LoadedManifest[TokensManifest]]) -> None:
    tokens = make_tokens("a", [[2], [3]])
    counts = tokens.manifest.counts.model_copy(update={"documents": 2, "tokens": 5, "input_documents": 2})
    assert find_problems(vouched(tokens, counts=counts)) == []
    (problem,) = find_problems(vouched(tokens, counts=counts, shards=tokens.manifest.shards[::-1]))
    assert "shards: they do not stand in the order they were written" in problem


def test_imported_hashes_are_those_of_the_tokens(
    prep: Callable[..., Any], tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_checks, "HASHED_TOKENS", 4)  # some batches, one of a document that is longer
    np.array([5, 6, 0, 7, 0, 8, 8, 8, 8, 8, 0, 9, 0], "<u2").tofile(tmp_path / "a.npy")
    command = ("import-tokens", tmp_path / "a.npy", "--format", "olmo", "--tokenizer", tokenizer)
    assert prep(*command, "--out", tmp_path / "out").code == 0
    imported = load_manifest(str(tmp_path / "out"), TokensManifest)
    assert find_problems(imported) == []
    hashes = pq.read_table(tmp_path / "out/shard-00000.documents.parquet").column("hash").to_pylist()
    assert len(hashes) == 4
    set_hashes([hashes[0], *hashes[2:0:-1], hashes[3]])(tmp_path / "out")
    (problem,) = find_problems(vouched(imported))
    assert "the hash of document 1 is not that of its tokens, nor are 1 others" in problem


def test_text_may_become_an_end_where_that_is_allowed(tokenize: Tokenize) -> None:
    allowed = tokenize("allowed", ["one<|endoftext|>two"], allow_special=True)
    assert find_problems(allowed) == []
    pretending = vouched(allowed, config=allowed.manifest.config | {"allow_special": False})
    (problem,) = find_problems(pretending)
    assert "2 times the id 0" in problem


def test_documents_that_nothing_closes_are_not_asked_to_end(tokenize: Tokenize) -> None:
    assert find_problems(tokenize("open", ["one", "two"], append_end_of_document=False)) == []
    assert find_problems(tokenize("none", [])) == []


def test_an_empty_document_ends_with_nothing(
    make_tokens: Callable[..., LoadedManifest[TokensManifest]],
) -> None:
    tokens = make_tokens("a", [[0, 2, 0]], vocab_size=2)  # ids 0, 1
    counts = tokens.manifest.counts.model_copy(update={"documents": 3, "tokens": 2, "input_documents": 3})
    (problem,) = find_problems(vouched(tokens, end_of_document_id=1, counts=counts))
    assert "documents that end with 1: 1, but 3 are needed" in problem


def test_shards_elsewhere_are_hashed_and_the_rest_is_said(tokens: LoadedManifest[TokensManifest]) -> None:
    memory, checked = fsspec.filesystem("memory"), Checked()
    memory.put(tokens.folder, "/verified", recursive=True)
    try:
        assert find_problems(load_manifest("memory://verified"), checked=checked) == []
    finally:
        memory.rm("/verified", recursive=True)
    assert (checked.files, checked.tokens) == (len(tokens.manifest.files), 0)
    (note,) = checked.notes
    assert "its tokens were not looked at, as they lie elsewhere; copy the folder here" in note


def test_prep_verify_says_what_it_checked(prep: Callable[..., Any], tokens: LoadedManifest[TokensManifest]) -> None:
    files = tokens.manifest.files
    num_bytes, num_tokens = sum(entry.bytes for entry in files), tokens.manifest.counts.tokens
    outcome = prep("verify", tokens.folder)
    shown = f"{len(files)} files, {num_bytes:,} bytes, 3 documents, {num_tokens} tokens checked"
    assert (outcome.code, outcome.out) == (0, f"{tokens.folder}: ok ({shown})\n")
    set_token(2, 300)(Path(tokens.folder))
    vouched(tokens)
    outcome = prep("verify", tokens.folder, "--json")
    row = json.loads(outcome.out)[tokens.folder]
    assert (outcome.code, row["ok"], len(row["problems"])) == (3, False, 1)
    assert row["checked"] == {
        "files": len(files),
        "bytes": num_bytes,
        "documents": 3,
        "tokens": num_tokens,
        "notes": [],
    }
