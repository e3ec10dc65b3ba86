"""Rejected rows as they are written down: whole, up to a limit."""

import base64
import json
import tracemalloc

from tokenmill_core.documents import MAX_RAW_BYTES, Account
from tokenmill_core.readers import Format, Piece, ReadOptions, read_piece
from tokenmill_core.rejects import encode_reject


def rejected(path, content):
    path.write_bytes(content)
    lines = []
    account = Account(on_reject=lambda reject: lines.append(encode_reject(reject)))
    piece = Piece(url=str(path), name="set/a", format=Format.JSONL, bytes=0)
    assert list(read_piece(piece, ReadOptions(), account)) == []
    return [json.loads(line) for line in lines], account


def test_a_row_is_kept_whole(tmp_path):
    for raw in (b"x" * (MAX_RAW_BYTES - 1), "é".encode() * (MAX_RAW_BYTES // 2)):
        (row,), account = rejected(tmp_path / "a", raw + b"\n")
        assert row == {
            "file": "set/a",
            "row": 1,
            "reason": "invalid_json",
            "bytes": len(raw),
            "raw": raw.decode(),
        }
        assert account.dropped == {"invalid_json": (1, len(raw))}


def test_a_longer_row_is_cut_between_characters_and_its_size_is_true(tmp_path):
    raw = ("x" + "é" * MAX_RAW_BYTES).encode()
    (row,), account = rejected(tmp_path / "a", raw)
    assert row["bytes"] == len(raw) == account.bytes
    assert row["raw"] == "x" + "é" * (MAX_RAW_BYTES // 2 - 1)


def test_what_is_no_text_is_kept_byte_for_byte(tmp_path):
    for raw in (b"caf\xe9", "é".encode()[:1], b"\xff" * (MAX_RAW_BYTES + 5)):
        (row,), _ = rejected(tmp_path / "a", raw)
        assert row["reason"] == "invalid_utf8"
        assert base64.b64decode(row["raw_base64"]) == raw[:MAX_RAW_BYTES]
        assert row["bytes"] == len(raw)


def test_many_large_rows_do_not_add_up_in_memory(tmp_path):
    path = tmp_path / "a"
    path.write_bytes((b"x" * MAX_RAW_BYTES + b"\n") * 100)
    written = 0

    def write(reject):
        nonlocal written
        written += len(encode_reject(reject))

    piece = Piece(url=str(path), name="f", format=Format.JSONL, bytes=0)
    tracemalloc.start()
    try:
        assert list(read_piece(piece, ReadOptions(), Account(on_reject=write))) == []
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert written > 100 * MAX_RAW_BYTES
