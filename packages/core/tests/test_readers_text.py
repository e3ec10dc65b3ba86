"""Plain text and source code: one document a file, its bytes untouched."""

import gzip

import pytest

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers import Format, Piece, ReadOptions, read_piece, read_pieces


def piece(path, format=Format.TEXT):
    return Piece(url=str(path), name=f"set/{path.name}", format=format, bytes=path.stat().st_size)


def read(path, **options):
    account = Account()
    batches = list(read_piece(piece(path), ReadOptions(**options), account))
    return [document for batch in batches for document in batch.to_pylist()], account


@pytest.mark.parametrize("content", ["a\r\n\tb\n\n  c", "x", "\n\nlead and trail \n", "caf\u00e9 \u6f22\u5b57"])
def test_the_file_is_the_document(tmp_path, content):
    path = tmp_path / "a.txt"
    path.write_bytes(content.encode())
    documents, account = read(path)
    assert documents == [{"id": None, "text": content, "file": "set/a.txt", "row": 1}]
    assert (account.documents, account.bytes, account.dropped, account.notes) == (1, len(content.encode()), {}, {})


def test_mark_is_stripped_and_nul_replaced_and_both_noted(tmp_path):
    path = tmp_path / "a.py"
    path.write_bytes(b"\xef\xbb\xbfa\0b")
    documents, account = read(path)
    assert documents[0]["text"] == "a\ufffdb"
    assert account.notes == {"byte_order_marks": 1, "repaired_characters": 1}
    assert account.bytes == 5


def test_invalid_utf8_rejects_the_file(tmp_path):
    path = tmp_path / "a.c"
    path.write_bytes(b"/* caf\xe9 */")
    documents, account = read(path)
    assert documents == []
    assert account.dropped == {"invalid_utf8": (1, 10)}
    with pytest.raises(InputError, match=r"a\.c:1: invalid_utf8"):
        read(path, strict=True)


def test_blank_and_empty_files(tmp_path):
    blank, empty = tmp_path / "blank.txt", tmp_path / "empty.txt"
    blank.write_bytes(b" \n\t")
    empty.write_bytes(b"")
    assert read(blank)[1].dropped == {"blank_text": (1, 3)}
    assert read(empty)[1] == Account(notes={"empty_files": 1})


def test_compressed_text(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"hello"))
    assert read(path)[0][0]["text"] == "hello"


def test_small_files_share_batches_and_keep_their_names(tmp_path):
    paths = [tmp_path / f"{i:03d}.py" for i in range(200)]
    for path in paths:
        path.write_text(f"x = '{path.name}'\n")
    account = Account()
    batches = list(read_pieces([piece(path, Format.SOURCE) for path in paths], ReadOptions(), account))
    assert len(batches) == 1
    assert batches[0].column("file").to_pylist() == [f"set/{path.name}" for path in paths]
    assert batches[0].column("text").to_pylist() == [path.read_text() for path in paths]
    assert account.documents == 200
