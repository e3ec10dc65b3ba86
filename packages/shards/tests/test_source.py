"""A tokens dataset as one stream: reads across shards, documents by offset, damage found before anything is read."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tokenmill_core.errors import InputError, VerificationError
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, publish
from tokenmill_shards import ShardWriter, TokenSource, Verify

MakeTokens = Callable[..., LoadedManifest[TokensManifest]]
LENGTHS = [[5, 0, 3], [], [1], [0, 0, 9, 2, 0]]


@pytest.fixture
def tokens(make_tokens: MakeTokens) -> LoadedManifest[TokensManifest]:
    return make_tokens("a", LENGTHS)


@pytest.mark.parametrize("vocab_size", [60_000, 70_000])
def test_every_window_of_every_length_is_the_stream(make_tokens: MakeTokens, vocab_size: int) -> None:
    source = TokenSource("a", make_tokens("a", LENGTHS, vocab_size), max_open_shards=2)
    assert source.num_tokens == 20
    for length in range(1, 21):
        starts = np.arange(20 - length + 1)[::-1]
        windows = source.read(starts, length)
        assert windows.dtype.name == ("uint16" if vocab_size == 60_000 else "int32")
        assert (windows == starts[:, None] + np.arange(length)).all()


@pytest.mark.parametrize(("start", "length"), [(-1, 3), (18, 3), (20, 1), (500, 2)])
def test_a_window_outside_the_stream_is_refused(
    tokens: LoadedManifest[TokensManifest], start: int, length: int
) -> None:
    with pytest.raises(IndexError, match=f"tokens {start} to {start + length} of 20"):
        TokenSource("a", tokens).read(np.array([start]), length)


def test_each_offset_leads_to_its_document_and_raw_row(tokens: LoadedManifest[TokensManifest]) -> None:
    source, offset = TokenSource("a", tokens), 0
    for shard, lengths in enumerate(LENGTHS):
        for document, length in enumerate(lengths):
            first = offset
            for offset in range(first, first + length):
                place = source.locate_document(offset)
                assert place.shard == f"shard-{shard:05d}"
                assert place.document == document
                assert place.file == f"a/shard-{shard:05d}.jsonl"
                assert (place.row, place.id) == (10 + document, f"a-{document}")
                assert (place.first_token, place.num_tokens) == (first, length)
            offset = first + length
    for outside in (-1, 20):
        with pytest.raises(IndexError, match="20 tokens"):
            source.locate_document(outside)


def test_a_dataset_without_shards_or_tokens_opens(make_tokens: MakeTokens) -> None:
    assert TokenSource("a", make_tokens("a", [])).num_tokens == 0
    assert TokenSource("b", make_tokens("b", [[], [0, 0]]), verify=Verify.FULL).num_tokens == 0


@pytest.mark.parametrize("name", ["shard-00003.bin", "shard-00003.idx", "shard-00000.documents.parquet"])
@pytest.mark.parametrize("change", ["cut", "grown", "missing"])
def test_a_file_of_another_size_is_refused_at_once(
    tokens: LoadedManifest[TokensManifest], name: str, change: str
) -> None:
    path = Path(tokens.folder) / name
    if change == "missing":
        path.unlink()
    else:
        os.truncate(path, path.stat().st_size + (1 if change == "grown" else -1))
    with pytest.raises(VerificationError, match=f"{name} .*manifest.json"):
        TokenSource("a", tokens)


@pytest.mark.parametrize("name", ["shard-00003.bin", "shard-00003.idx"])
@pytest.mark.parametrize("verify", [Verify.FULL, Verify.AUTO])
def test_a_changed_byte_is_found_when_contents_are_verified(
    tokens: LoadedManifest[TokensManifest], name: str, verify: Verify
) -> None:
    path = Path(tokens.folder) / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    TokenSource("a", tokens, verify=Verify.SIZES)
    with pytest.raises(VerificationError, match=f"{name}.*sha256"):
        TokenSource("a", tokens, verify=verify)


def test_auto_hashes_small_datasets_only(
    tokens: LoadedManifest[TokensManifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(tokens.folder) / "shard-00000.bin"
    path.write_bytes(path.read_bytes()[::-1])
    monkeypatch.setattr("tokenmill_shards.reading.source.AUTO_HASH_BYTES", 10)
    assert TokenSource("a", tokens, verify=Verify.AUTO).num_tokens == 20


def test_shards_that_shrink_or_vanish_later_are_named(tokens: LoadedManifest[TokensManifest]) -> None:
    source = TokenSource("a", tokens)
    (Path(tokens.folder) / "shard-00002.bin").unlink()
    os.truncate(Path(tokens.folder) / "shard-00003.bin", 4)
    with pytest.raises(VerificationError, match=r"shard-00002.bin is missing"):
        source.read(np.array([7]), 5)
    with pytest.raises(VerificationError, match=r"shard-00003.bin has 4 bytes"):
        source.read(np.array([9]), 2)


def test_an_index_of_another_type_is_refused_when_documents_are_asked_for(
    tokens: LoadedManifest[TokensManifest],
) -> None:
    """Rewritten behind the manifest's back with equal file sizes: 8 ids of 2 bytes are 4 ids of 4."""
    with ShardWriter(Path(tokens.folder) / "shard-00000", "int32", 100) as writer:
        writer.append(np.arange(4), np.array([1, 0, 3]))
    source = TokenSource("a", tokens)
    with pytest.raises(VerificationError, match=r"shard-00000\.idx has 4 tokens of int32, .* needs 8 of uint16"):
        source.locate_document(2)


def test_a_shard_that_a_link_leads_out_of_the_folder_is_refused(
    tokens: LoadedManifest[TokensManifest], tmp_path: Path
) -> None:
    inside, outside = Path(tokens.folder) / "shard-00000.bin", tmp_path / "elsewhere.bin"
    inside.replace(outside)
    inside.symlink_to(outside)
    with pytest.raises(VerificationError, match=r"shard-00000\.bin' leads out of"):
        TokenSource("a", tokens)


def test_a_manifest_that_does_not_agree_with_itself_is_refused(tokens: LoadedManifest[TokensManifest]) -> None:
    manifest = tokens.manifest
    without = manifest.model_copy(update={"files": manifest.files[1:]})
    with pytest.raises(VerificationError, match=r"not its file shard-00000\.bin"):
        TokenSource("a", publish(without, tokens.folder))
    wider = manifest.model_copy(update={"dtype": "int32"})
    with pytest.raises(VerificationError, match=r"shard-00000\.bin 16 bytes and 8 tokens of int32, which do not agree"):
        TokenSource("a", publish(wider, tokens.folder))


def test_remote_tokens_are_refused_by_name(tokens: LoadedManifest[TokensManifest]) -> None:
    remote = LoadedManifest(url="s3://bucket/a/manifest.json", manifest=tokens.manifest)
    with pytest.raises(InputError, match=r"local disks only, got s3://bucket/a/manifest\.json"):
        TokenSource("a", remote)


def test_open_finds_the_manifest_of_a_folder(tokens: LoadedManifest[TokensManifest]) -> None:
    source = TokenSource.open(tokens.folder)
    assert (source.name, source.num_tokens) == ("a", 20)
