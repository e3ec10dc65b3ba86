"""Token shards under what befalls files: wide vocabularies, short documents, and damage of every kind."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenmill_core.errors import VerificationError
from tokenmill_core.manifest_io import load_manifest
from tokenmill_shards import MixtureReader, Shard
from tokenmill_shards.formats.mmididx import sequence_offsets

Prep = Callable[..., Any]
MASKED = ("--loss-mask", "answers")


def documents_of(folder: Path) -> list[list[int]]:
    shards = [Shard(folder / name) for name in load_manifest(str(folder)).manifest.shards]  # type: ignore[union-attr]
    return [shard.document(number).tolist() for shard in shards for number in range(shard.num_documents)]


@pytest.fixture
def tokenize(prep: Prep, tmp_path: Path) -> Callable[..., Path]:
    """tokenize(raw, tokenizer, out="tokens"): the folder of tokens; the command must succeed."""

    def run(raw: Path, tokenizer: Path, *options: object, out: str = "tokens") -> Path:
        outcome = prep("tokenize", raw, "--tokenizer", tokenizer, "--out", tmp_path / out, "--workers", 1, *options)
        assert outcome.code == 0, outcome.err
        return tmp_path / out

    return run


# Vocabularies


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 70_000])
def test_every_id_up_to_the_top_one_reads_back(
    tokenize: Callable[..., Path], write_lines: Any, word_tokenizer: Callable[..., Path], size: int
) -> None:
    top = size - 2
    raw = write_lines("raw.jsonl", [f"w0 w{top} w{top // 2}", f"w{top}"])
    folder = tokenize(raw, word_tokenizer(size))
    assert documents_of(folder) == [[0, top, top // 2, size - 1], [top, size - 1]]
    # Of 65,537 ids all words fit 16 bits, and only the special one does not.
    assert load_manifest(str(folder)).manifest.dtype == ("uint16" if size <= 65_536 else "int32")  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_lengths_of_32_bits_are_summed_in_64(dtype: Any) -> None:
    lengths = np.full(5, (1 << 30) + 1, dtype)
    assert sequence_offsets(lengths).tolist() == [n * ((1 << 30) + 1) for n in range(6)]
    assert sequence_offsets(lengths)[-1] * 2 > 1 << 33


# Documents


def test_short_documents_end_once_or_never_and_lengths_sum_to_the_tokens(
    tokenize: Callable[..., Path], write_lines: Any, word_tokenizer: Callable[..., Path]
) -> None:
    """The tokenizer gives nothing at all for the first text: it is dropped, and accounted for."""
    raw, tokenizer = write_lines("raw.jsonl", ["nothing", "w5", "w1 w2 w3"]), word_tokenizer(100)
    closed = tokenize(raw, tokenizer, out="closed")
    opened = tokenize(raw, tokenizer, "--no-end-of-document", out="open")
    assert documents_of(closed) == [[5, 99], [1, 2, 3, 99]]
    assert documents_of(opened) == [[5], [1, 2, 3]]
    for folder, end in ((closed, 99), (opened, None)):
        manifest: Any = load_manifest(str(folder)).manifest
        assert manifest.end_of_document_id == end
        assert manifest.counts.tokens == sum(map(len, documents_of(folder)))
        assert (manifest.counts.input_documents, manifest.counts.documents) == (3, 2)
        assert [(row.reason, row.documents) for row in manifest.ledger] == [("no_tokens", 1)]
        assert (folder / "shard-00000.bin").stat().st_size == 2 * manifest.counts.tokens


def test_without_an_end_token_nothing_is_started(
    prep: Prep, write_lines: Any, word_tokenizer: Callable[..., Path], tmp_path: Path
) -> None:
    tokenizer = word_tokenizer(100, end="<other>")
    raw = write_lines("raw.jsonl", ["w1"])
    outcome = prep("tokenize", raw, "--tokenizer", tokenizer, "--out", tmp_path / "out")
    assert outcome.code == 1
    assert "no token to end a document with; name one with --end-of-document" in outcome.err
    assert not (tmp_path / "out").exists()


def test_merging_keeps_order_and_refuses_what_does_not_fit(
    prep: Prep, tokenize: Callable[..., Path], write_lines: Any, word_tokenizer: Callable[..., Path], tmp_path: Path
) -> None:
    small, wide = word_tokenizer(100), word_tokenizer(70_000)
    texts = {"a": ["w1", "w2", "w3"], "empty": [], "b": ["w4", "w5"]}
    parts = [tokenize(write_lines(f"{n}.jsonl", t), small, out=n) for n, t in texts.items()]
    assert prep("merge", *parts, "--out", tmp_path / "merged", "--workers", 1).code == 0
    assert documents_of(tmp_path / "merged") == [[n, 99] for n in range(1, 6)]
    other = tokenize(tmp_path / "a.jsonl", wide, out="wide")
    refused = prep("merge", parts[0], other, "--out", tmp_path / "mixed")
    assert refused.code == 1
    assert str(other) in refused.err
    assert not (tmp_path / "mixed" / "manifest.json").exists()


# Damage


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def published(
    prep: Prep, tokenize: Callable[..., Path], write_lines: Any, tokenizer: Path, tmp_path: Path
) -> tuple[Path, Path]:
    """(tokens, a mixture of them)."""
    texts = [f"The quick brown fox number {i} jumps. " * 5 for i in range(20)]
    raw = write_lines("raw.jsonl", [{"text": text, "answers": [[0, 9]]} for text in texts])
    folder = tokenize(raw, tokenizer, *MASKED)
    assert prep("mix", f"a={folder}", "--out", tmp_path / "mixture.json").code == 0
    return folder, tmp_path / "mixture.json"


@pytest.fixture
def foreign_index(tokenize: Callable[..., Path], write_lines: Any, tokenizer: Path) -> Path:
    """The index of another run: as many documents, and so of the same size, but of other lengths."""
    raw = write_lines("other.jsonl", [f"Other text {i}. " * (i + 1) for i in range(20)])
    return tokenize(raw, tokenizer, out="other") / "shard-00000.idx"


def delete_index(folder: Path, foreign: Path) -> str:
    (folder / "shard-00000.idx").unlink()
    return "shard-00000.idx"


def drop_last_bytes(folder: Path, foreign: Path) -> str:
    path = folder / "shard-00000.bin"
    os.truncate(path, path.stat().st_size - 2)
    return path.name


def index_of_another_run(folder: Path, foreign: Path) -> str:
    own = folder / "shard-00000.idx"
    assert own.stat().st_size == foreign.stat().st_size
    own.unlink()
    shutil.copy(foreign, own)
    return own.name


def flip_type_byte(folder: Path, foreign: Path) -> str:
    path = folder / "shard-00000.idx"
    changed = bytearray(path.read_bytes())
    assert changed[17] == 8
    changed[17] = 4
    path.write_bytes(changed)
    return path.name


def change_a_token(folder: Path, foreign: Path) -> str:
    path = folder / "shard-00000.bin"
    changed = bytearray(path.read_bytes())
    changed[100] ^= 1
    path.write_bytes(changed)
    return path.name


def change_a_mask(folder: Path, foreign: Path) -> str:
    path = folder / "shard-00000.loss_mask.bin"
    path.write_bytes(path.read_bytes()[::-1])
    return path.name


def cut_a_mask(folder: Path, foreign: Path) -> str:
    path = folder / "shard-00000.loss_mask.bin"
    os.truncate(path, path.stat().st_size - 1)
    return path.name


@pytest.mark.parametrize(
    "damage",
    [delete_index, drop_last_bytes, index_of_another_run, flip_type_byte, change_a_token, change_a_mask, cut_a_mask],
)
def test_damage_is_named_and_refused_and_mended_by_building_again(
    prep: Prep,
    published: tuple[Path, Path],
    foreign_index: Path,
    tokenize: Callable[..., Path],
    tokenizer: Path,
    tmp_path: Path,
    damage: Callable[[Path, Path], str],
) -> None:
    folder, mixture = published
    before = content(folder)
    name = damage(folder, foreign_index)
    verified = prep("verify", folder)
    assert verified.code == 3
    assert f"{folder}/{name}" in verified.out
    with pytest.raises(VerificationError, match=name):
        MixtureReader.open(str(mixture), 16)
    traced = prep("trace", mixture, "--sample", 3, "--sequence-length", 16)
    assert traced.code == 3
    assert name in traced.err
    # Sizes are looked at in every run; for content that changed in place there is --force.
    resized = damage in (delete_index, drop_last_bytes, cut_a_mask)
    tokenize(tmp_path / "raw.jsonl", tokenizer, *MASKED, *(() if resized else ("--force",)))
    assert content(folder) == before
    assert prep("verify", folder).code == 0
    MixtureReader.open(str(mixture), 16)


def test_a_rerun_with_other_settings_leaves_nothing_of_the_old_build(
    tokenize: Callable[..., Path], write_lines: Any, tokenizer: Path
) -> None:
    raw = write_lines("raw.jsonl", [{"text": "one", "answers": True}, {"text": "two", "answers": False}, b"42"])
    folder = tokenize(raw, tokenizer, *MASKED)
    assert {"rejects.jsonl", "shard-00000.loss_mask.bin"} <= content(folder).keys()
    write_lines("raw.jsonl", ["one"])
    tokenize(raw, tokenizer, "--no-end-of-document")
    assert not (folder / "rejects.jsonl").exists()
    assert sorted(content(folder)) == sorted(content(tokenize(raw, tokenizer, "--no-end-of-document", out="fresh")))
