"""Token files that are not what they should be are refused by name, and nothing is published."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenmill_shards import ShardWriter

TOKENS = np.array([5, 6, 7, 0, 8, 0, 9, 10, 11, 12, 0])
ENDS = np.array([4, 6, 11])


@pytest.fixture
def refused(prep: Callable[..., Any], tokenizer: Path, tmp_path: Path) -> Callable[..., str]:
    """refused("olmo", path, …): what `prep import-tokens` says as it gives up; `code` is its exit code."""

    def run(format: str, *arguments: object, code: int = 1) -> str:
        out = tmp_path / "out"
        outcome = prep(
            "import-tokens", "--format", format, "--tokenizer", tokenizer, "--out", out, "--workers", 1, *arguments
        )
        assert outcome.code == code
        assert not (out / "manifest.json").exists()
        assert "Traceback" not in outcome.err
        return str(outcome.err)

    return run


def write(path: Path, *arrays: np.ndarray[Any, Any] | bytes) -> Path:
    path.write_bytes(b"".join(array if isinstance(array, bytes) else array.tobytes() for array in arrays))
    return path


def write_ds(path: Path, tokens: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> Path:
    write(path.with_name(path.name + ".index"), ends.astype("<u8"))
    return write(path, tokens)


def write_npy(path: Path, bounds: bytes) -> Path:
    write(path.with_suffix(".csv.gz"), bounds)
    return write(path, TOKENS.astype("<u2"))


def header(magic: int, version: int, num_tokens: int) -> np.ndarray[Any, Any]:
    return np.array([magic, version, num_tokens] + [0] * 253, "<i4")


def test_datatrove_tokens_that_were_cut_short(refused: Callable[..., str], tmp_path: Path) -> None:
    path = write_ds(tmp_path / "a.ds", TOKENS[:-1].astype("<u2"), ENDS)
    assert f"{path} has 20 bytes, but the documents of a.ds.index end at token 11" in refused("datatrove", path)
    write(path, TOKENS.astype("<u2"), b"\0")
    assert "has 23 bytes" in refused("datatrove", path)


def test_a_datatrove_index_that_is_cut_or_falls(refused: Callable[..., str], tmp_path: Path) -> None:
    path = write_ds(tmp_path / "a.ds", TOKENS.astype("<u2"), np.array([6, 4, 11]))
    assert "a.ds.index: document 2 ends at token 4, before it begins" in refused("datatrove", path)
    write(tmp_path / "a.ds.index", ENDS.astype("<u8").tobytes()[:-1])
    assert "a.ds.index: 23 bytes are no whole number of 8-byte ends" in refused("datatrove", path)


@pytest.mark.parametrize("mask", [b"\1" * 10, b"\1" * 10 + b"\2"])
def test_a_datatrove_loss_that_is_not_of_these_tokens(refused: Callable[..., str], tmp_path: Path, mask: bytes) -> None:
    path = write_ds(tmp_path / "a.ds", TOKENS.astype("<u2"), ENDS)
    write(tmp_path / "a.ds.loss", mask)
    assert "a.ds.loss: " in (message := refused("datatrove", path))
    assert "a loss mask has a 0 or 1 for each of the 11 tokens" in message


def test_an_id_that_the_tokenizer_does_not_have(refused: Callable[..., str], tmp_path: Path) -> None:
    path = write_ds(tmp_path / "a.ds", np.where(TOKENS == 9, 300, TOKENS).astype("<u2"), ENDS)
    assert f"{path}: document 3 holds the id 300, but the tokenizer's ids end at 299" in refused("datatrove", path)
    write(path, np.where(TOKENS == 8, 1 << 31, TOKENS).astype("<u4"))
    assert "document 2 holds the id 2147483648" in refused("datatrove", path)


def test_olmo_bytes_that_are_no_whole_tokens_or_an_array_of_numpy(refused: Callable[..., str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.npy", TOKENS.astype("<u2"), b"\0")
    assert f"{path}: 23 bytes are no whole number of tokens of 2 bytes" in refused("olmo", path)
    np.save(path, TOKENS)
    assert f"{path}: an array that numpy.save wrote, not bare tokens" in refused("olmo", path)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (b"0,4\n4,6\n6,10\n", "its documents end at token 10, but there are 11 tokens"),
        (b"0,4\n4,6\n6,12\n", "its documents end at token 12, but there are 11 tokens"),
        (b"0,4\n5,11\n", "row 2 begins at token 5, what stands before it ends at 4"),
        (b"1,11\n", "row 1 begins at token 1, what stands before it ends at 0"),
        (b"0,4\n4,2\n2,11\n", "document 2 ends at token 2, before it begins"),
        (b"0,4\nfour,11\n", "row 2: its start is 'four', but must be a number of tokens"),
        (b"0,4,a\n,11,b\n", "row 2: its start is '', but must be a number of tokens"),
        (b"0,4\n4,6\n6,\n", "row 3: its end is '', but must be a number of tokens"),
        (b"0,4\n4,11.0\n", "row 2: its end is '11.0', but must be a number of tokens"),
        (b"0,4\n4,nan\n", "row 2: its end is 'nan', but must be a number of tokens"),
        (b"0,-4\n-4,11\n", "row 2: its start is '-4', but must be a number of tokens"),
        (b"0,99999999999999999999\n", "row 1: its end is '99999999999999999999', but must be a number of tokens"),
        (b"start,end\n0,11\n", "row 1: its start is 'start', but must be a number of tokens"),
        (b"11\n", "no gzipped rows of start,end"),
        (b"", "its documents end at token 0, but there are 11 tokens"),
    ],
)
def test_olmo_bounds_that_are_not_of_these_tokens(
    refused: Callable[..., str], tmp_path: Path, rows: bytes, complaint: str
) -> None:
    path = write_npy(tmp_path / "a.npy", gzip.compress(rows))
    assert f"a.csv.gz: {complaint}" in refused("olmo", path)


def test_olmo_bounds_that_are_cut_or_not_compressed(refused: Callable[..., str], tmp_path: Path) -> None:
    path = write_npy(tmp_path / "a.npy", gzip.compress(b"0,4\n4,11\n")[:-9])
    assert "a.csv.gz: no gzipped rows of start,end" in refused("olmo", path)
    write_npy(path, b"0,4\n4,11\n")
    assert "a.csv.gz: no gzipped rows of start,end" in refused("olmo", path)


def test_llmc_headers_that_lie(refused: Callable[..., str], tmp_path: Path) -> None:
    tokens = TOKENS.astype("<u2")
    path = write(tmp_path / "a.bin", header(20240520, 1, 11), tokens[:-1])
    assert f"{path}: its header says 11 tokens, 10 follow" in refused("llmc", path)
    write(path, header(20240520, 1, 11), tokens, b"\0")
    assert "23 bytes are no whole number of tokens of 2 bytes" in refused("llmc", path)
    write(path, header(20240520, 2, 11), tokens)
    assert "begins with 20240520 and 2, llm.c's token files with 20240520 and 1" in refused("llmc", path)
    write(path, tokens)
    assert "22 bytes, llm.c's header alone has 1,024" in refused("llmc", path)


def test_megatron_files_that_are_cut_or_of_another_type(refused: Callable[..., str], tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "a", "uint16", 300) as writer:
        writer.append(TOKENS, np.diff(ENDS, prepend=0))
    path, index = tmp_path / "a.bin", tmp_path / "a.idx"
    content = index.read_bytes()
    index.write_bytes(content[:17] + bytes([5]) + content[18:])
    assert "token type code 5, needs 8 (uint16) or 4 (int32)" in refused("megatron", path, code=3)
    index.write_bytes(content)
    path.write_bytes(path.read_bytes()[:-2])
    assert "a.bin has 20 bytes, but its index a.idx needs 22" in refused("megatron", path, code=3)
    index.unlink()
    assert "a.idx is missing" in refused("megatron", path, code=3)


def test_files_of_two_types_or_with_and_without_a_mask(refused: Callable[..., str], tmp_path: Path) -> None:
    write_ds(tmp_path / "raw-a.ds", TOKENS.astype("<u2"), ENDS)
    write_ds(tmp_path / "raw-b.ds", TOKENS.astype("<u4"), ENDS)
    pattern = tmp_path / "raw-*.ds"
    assert "raw-b.ds has dtype int32, but the files before it uint16" in refused("datatrove", pattern)
    write(tmp_path / "raw-b.ds", TOKENS.astype("<u2"))
    write(tmp_path / "raw-b.ds.loss", b"\1" * 11)
    assert "raw-b.ds has loss_mask True, but the files before it False" in refused("datatrove", pattern)


def test_paths_that_lead_nowhere_or_twice_to_one_place(refused: Callable[..., str], tmp_path: Path) -> None:
    path = write_ds(tmp_path / "a.ds", TOKENS.astype("<u2"), ENDS)
    (tmp_path / "b").mkdir()
    write_ds(tmp_path / "b" / "a.ds", TOKENS.astype("<u2"), ENDS)
    assert "no such file or folder" in refused("datatrove", tmp_path / "x.ds")
    assert "leads to no *.npy file; check the path and --format" in refused("olmo", path)
    assert "two inputs are called a" in refused("datatrove", path, tmp_path / "b" / "a.ds")
    assert f"given twice: {path}" in refused("datatrove", path, tmp_path / "*.ds")
    assert "must be on a local disk" in refused("datatrove", "memory://a.ds")


def test_no_end_of_document_to_split_by(
    refused: Callable[..., str], tmp_path: Path, wide_tokenizer: Callable[[int], Path]
) -> None:
    path = write(tmp_path / "a.npy", TOKENS.astype("<u2"))
    bare = tmp_path / "bare.json"
    bare.write_text(wide_tokenizer(300).read_text().replace("<eos>", "<end>"))
    message = refused("olmo", path, "--tokenizer", bare)
    assert f"{path}: nothing beside it says where documents end" in message
    assert "no token '<stop>' to end a document with" in refused("olmo", path, "--end-of-document", "<stop>")


def test_what_changes_the_original_changes_the_shard_and_is_found(
    prep: Callable[..., Any], tokenizer: Path, tmp_path: Path
) -> None:
    path, out = write_ds(tmp_path / "a.ds", TOKENS.astype("<u2"), ENDS), tmp_path / "out"
    arguments = ("import-tokens", path, "--format", "datatrove", "--tokenizer", tokenizer, "--out", out)
    assert prep(*arguments, "--workers", 1).code == 0
    assert prep("verify", out).code == 0
    with path.open("r+b") as file:
        file.write(b"\7")
    outcome = prep("verify", out)
    assert outcome.code == 3
    assert "shard-00000.bin" in outcome.out + outcome.err
