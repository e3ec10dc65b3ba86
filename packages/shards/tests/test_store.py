"""Shards found when they are needed: every file checked against the manifest, nothing read before it is asked for."""

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tokenmill_core.errors import VerificationError
from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, publish
from tokenmill_shards import MixtureReader, ShardStore, ShardWriter, Verify
from tokenmill_shards.reading.store import settle, shard_tokens

MakeTokens = Callable[..., LoadedManifest[TokensManifest]]
LENGTHS = [[5, 0, 3], [], [1], [0, 0, 9, 2, 0]]


@pytest.fixture
def tokens(make_tokens: MakeTokens) -> LoadedManifest[TokensManifest]:
    return make_tokens("a", LENGTHS)


def store_of(loaded: LoadedManifest[TokensManifest]) -> ShardStore:
    return ShardStore("a", lambda: loaded, loaded.manifest.dtype)


@pytest.mark.parametrize("vocab_size", [60_000, 70_000])
def test_shards_hold_what_was_written(make_tokens: MakeTokens, vocab_size: int) -> None:
    loaded = make_tokens("a", LENGTHS, vocab_size)
    store = store_of(loaded)
    assert shard_tokens(loaded.manifest) == (8, 0, 1, 11) == store.check(Verify.FULL)
    assert np.concatenate([store.tokens(number) for number in range(4)]).tolist() == list(range(20))
    assert store.index(3).document_offsets.tolist() == [0, 0, 0, 9, 11, 11]
    assert store.mask(0) is None
    assert store.hashes(0).size == 3
    assert store.place(3, 2) == ("a/shard-00003.jsonl", 12, "a-2")
    with pytest.raises(VerificationError, match="has 4 shards, there is no number 4"):
        store.tokens(4)


def test_nothing_is_loaded_before_it_is_asked_for(tokens: LoadedManifest[TokensManifest]) -> None:
    loads = []

    def load() -> LoadedManifest[TokensManifest]:
        loads.append(1)
        return tokens

    store = ShardStore("a", load, "uint16")
    assert not loads
    store.tokens(0), store.tokens(3), store.index(0)
    assert len(loads) == 1


@pytest.mark.parametrize("name", ["shard-00003.bin", "shard-00003.idx", "shard-00000.documents.parquet"])
@pytest.mark.parametrize("change", ["cut", "grown", "missing"])
def test_a_file_of_another_size_is_named(tokens: LoadedManifest[TokensManifest], name: str, change: str) -> None:
    path = Path(tokens.folder) / name
    if change == "missing":
        path.unlink()
    else:
        os.truncate(path, path.stat().st_size + (1 if change == "grown" else -1))
    with pytest.raises(VerificationError, match=f"{name}.*manifest"):
        store_of(tokens).check(Verify.SIZES)
    read = {"bin": lambda s: s.tokens(3), "idx": lambda s: s.index(3), "parquet": lambda s: s.hashes(0)}
    with pytest.raises(VerificationError, match=f"{name}.*manifest.json"):
        read[name.rpartition(".")[2]](store_of(tokens))


@pytest.mark.parametrize("name", ["shard-00003.bin", "shard-00003.idx"])
def test_a_changed_byte_is_found_when_contents_are_verified(tokens: LoadedManifest[TokensManifest], name: str) -> None:
    path = Path(tokens.folder) / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    store_of(tokens).check(Verify.SIZES)
    with pytest.raises(VerificationError, match=f"{name}.*sha256"):
        store_of(tokens).check(Verify.FULL)


def test_auto_hashes_small_datasets_only() -> None:
    assert settle(Verify.AUTO, 1 << 30) is Verify.FULL
    assert settle(Verify.AUTO, (1 << 30) + 1) is Verify.AUTO
    assert settle(Verify.SIZES, 5) is Verify.SIZES


def test_an_index_of_another_type_is_refused(tokens: LoadedManifest[TokensManifest]) -> None:
    """Rewritten behind the manifest's back with equal file sizes: 8 ids of 2 bytes are 4 ids of 4."""
    with ShardWriter(Path(tokens.folder) / "shard-00000", "int32", 100) as writer:
        writer.append(np.arange(4), np.array([1, 0, 3]))
    with pytest.raises(VerificationError, match=r"shard-00000\.idx has 4 tokens of int32, .* needs 8 of uint16"):
        store_of(tokens).index(0)


def test_a_shard_that_a_link_leads_out_of_the_folder_is_refused(
    tokens: LoadedManifest[TokensManifest], tmp_path: Path
) -> None:
    inside, outside = Path(tokens.folder) / "shard-00000.bin", tmp_path / "elsewhere.bin"
    inside.replace(outside)
    inside.symlink_to(outside)
    with pytest.raises(VerificationError, match=r"shard-00000\.bin' leads out of"):
        store_of(tokens).tokens(0)


def test_a_manifest_that_does_not_agree_with_itself_is_refused(tokens: LoadedManifest[TokensManifest]) -> None:
    without = publish(tokens.manifest.model_copy(update={"files": tokens.manifest.files[1:]}), tokens.folder)
    with pytest.raises(VerificationError, match=r"not its file shard-00000\.bin"):
        store_of(without).tokens(0)
    wider = publish(tokens.manifest.model_copy(update={"dtype": "int32"}), tokens.folder)
    with pytest.raises(VerificationError, match=r"shard-00002\.bin 2 bytes, which are no whole tokens of int32"):
        store_of(wider).tokens(2)


def test_a_mixture_too_large_to_hash_opens_at_once_and_is_checked_behind(
    make_tokens: MakeTokens, make_mixture: Callable[..., LoadedManifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = make_tokens("a", [[500], [700]])
    mixture = make_mixture({"a": (tokens, 1)})
    monkeypatch.setattr("tokenmill_shards.reading.store.AUTO_HASH_BYTES", 10)
    (Path(tokens.folder) / "shard-00001.idx").unlink()  # reading plain windows would never notice
    reader = MixtureReader.open(mixture.url, 16)
    with pytest.raises(VerificationError, match=r"shard-00001\.idx"):
        deque((reader.samples(np.arange(8)) for _ in range(10_000)), maxlen=0)
    with pytest.raises(VerificationError, match=r"shard-00001\.idx"):
        MixtureReader.open(mixture.url, 16, verify="sizes")


def test_a_check_behind_that_breaks_off_is_no_check(
    make_tokens: MakeTokens, make_mixture: Callable[..., LoadedManifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    mixture = make_mixture({"a": (make_tokens("a", [[500], [700]]), 1)})
    monkeypatch.setattr("tokenmill_shards.reading.store.AUTO_HASH_BYTES", 10)
    sound = MixtureReader.open(mixture.url, 16)
    sound.finish_check()

    def fails(loaded: object, entry: object) -> None:
        raise RuntimeError("the disk went away")

    monkeypatch.setattr("tokenmill_shards.reading.store.check_size", fails)
    reader = MixtureReader.open(mixture.url, 16)
    with pytest.raises(VerificationError, match="the check of all files broke off: RuntimeError: the disk went away"):
        reader.finish_check()
    with pytest.raises(VerificationError, match="broke off"):
        reader.samples(np.arange(3))
