"""Compressed files: whole streams, streams in a row, cut, damaged, misnamed and empty ones."""

import bz2
import gzip
import json
import lzma
import random
import tracemalloc

import fsspec
import pytest
import zstandard

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers import Format, Piece, ReadOptions, read_piece
from tokenmill_core.readers.compression import read_chunks


def lines(first: int, last: int) -> bytes:
    words = random.Random(first)
    rows = ({"text": f"{i} " + " ".join(str(words.random()) for _ in range(20))} for i in range(first, last))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


COMPRESSORS = {".gz": gzip.compress, ".zst": zstd, ".zstd": zstd, ".bz2": bz2.compress, ".xz": lzma.compress}
SUFFIXES = [".gz", ".zst", ".bz2", ".xz"]


def read(url: object) -> tuple[list[str], Account]:
    account = Account()
    piece = Piece(url=str(url), name="f", format=Format.JSONL, bytes=0)
    texts = [text for batch in read_piece(piece, ReadOptions(), account) for text in batch.column("text").to_pylist()]
    return texts, account


@pytest.fixture
def plain(tmp_path):
    path = tmp_path / "plain.jsonl"
    path.write_bytes(lines(0, 3000))
    return read(path)[0]


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_compressed_equals_plain(tmp_path, plain, suffix):
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(COMPRESSORS[suffix](lines(0, 3000)))
    texts, account = read(path)
    assert texts == plain
    assert len(texts) == 3000
    assert account.notes == {}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_streams_in_a_row_are_read_whole(tmp_path, plain, suffix):
    compress, data = COMPRESSORS[suffix], lines(0, 3000)
    path = tmp_path / f"a.jsonl{suffix}"
    # The cut falls inside a line, an empty stream stands between.
    path.write_bytes(compress(data[:100_001]) + compress(b"") + compress(data[100_001:]))
    assert read(path)[0] == plain


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("share", [0.0, 0.00001, 0.01, 0.6, 0.999999])
def test_a_stream_cut_short_is_an_error_that_names_the_file(tmp_path, suffix, share):
    whole = COMPRESSORS[suffix](lines(0, 3000))
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(whole[: max(1, int(len(whole) * share))])
    with pytest.raises(InputError, match=rf"cannot read {path}: .*cut short"):
        read(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_second_stream_cut_short_is_an_error_too(tmp_path, suffix):
    whole = COMPRESSORS[suffix](lines(0, 100))
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(whole + whole[: int(len(whole) * 0.6)])
    with pytest.raises(InputError, match="cut short"):
        read(path)


def test_a_zstd_stream_without_checksum_or_size_cut_short_is_an_error(tmp_path):
    compressor = zstandard.ZstdCompressor(write_checksum=False, write_content_size=False).compressobj()
    whole = compressor.compress(lines(0, 3000)) + compressor.flush()
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(whole[: int(len(whole) * 0.6)])
    with pytest.raises(InputError, match="cut short"):
        read(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rubbish_after_a_stream_is_an_error_and_padding_is_not(tmp_path, plain, suffix):
    whole = COMPRESSORS[suffix](lines(0, 3000))
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(whole + b"\0" * 20_000)
    assert read(path)[0] == plain
    path.write_bytes(whole + b"rubbish")
    with pytest.raises(InputError, match=f"cannot read {path}"):
        read(path)


@pytest.mark.parametrize(("suffix", "place"), [(".gz", -5), (".bz2", -5), (".xz", -5), (".xz", 100), (".bz2", 100)])
def test_a_damaged_stream_is_an_error(tmp_path, suffix, place):
    whole = bytearray(COMPRESSORS[suffix](lines(0, 3000)))
    whole[place] ^= 1
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(whole)
    with pytest.raises(InputError, match=f"cannot read {path}"):
        read(path)


@pytest.mark.parametrize("suffix", [".bz2", ".xz"])
def test_what_expands_without_measure_is_expanded_step_by_step(tmp_path, suffix):
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(COMPRESSORS[suffix](b" " * (200 << 20)))
    assert path.stat().st_size < 50_000
    account = Account()
    tracemalloc.start()
    try:
        assert sum(map(len, read_chunks(str(path), account))) == 200 << 20
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_text_that_begins_like_a_bzip2_stream_is_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"BZh91 is no stream")
    assert b"".join(read_chunks(str(path), account := Account())) == b"BZh91 is no stream"
    assert account.notes == {}


def test_a_zstd_file_may_open_with_a_skippable_frame(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + zstd(lines(0, 10)))
    texts, account = read(path)
    assert len(texts) == 10
    assert account.notes == {}


def test_a_zstd_file_with_a_wide_window_is_read(tmp_path):
    parameters = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(compressor.compress(lines(0, 10)) + compressor.flush())
    assert len(read(path)[0]) == 10


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("a.jsonl.gz", ""), ("a.jsonl.zst", ""), ("a.jsonl", ".gz"), ("a.jsonl.gz", ".zst"), ("a.jsonl.xz", ".bz2")],
)
def test_content_decides_and_a_wrong_name_is_noted(tmp_path, plain, name, suffix):
    data = lines(0, 3000)
    path = tmp_path / name
    path.write_bytes(COMPRESSORS[suffix](data) if suffix else data)
    texts, account = read(path)
    assert texts == plain
    assert account.notes == {"misnamed_compression": 1}


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.jsonl"])
def test_a_file_of_no_bytes_is_an_empty_file(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"")
    texts, account = read(path)
    assert texts == []
    assert account.notes == {"empty_files": 1}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_stream_of_no_bytes_is_an_empty_file(tmp_path, suffix):
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(COMPRESSORS[suffix](b""))
    texts, account = read(path)
    assert texts == []
    assert account.notes == {"empty_files": 1}


def test_files_behind_a_url_are_read_alike(plain):
    url = "memory://test-readers-compression/a.jsonl.gz"
    with fsspec.open(url, "wb") as file:
        file.write(gzip.compress(lines(0, 3000)))
    assert read(url)[0] == plain
