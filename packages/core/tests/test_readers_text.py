"""Plain text and source code: one document a file, its bytes untouched; or a line or a part each, if one says so."""

import gzip
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import read as read_as

from tokenmill_core.config import validate_config
from tokenmill_core.documents import MAX_BATCH_BYTES, Account
from tokenmill_core.errors import ConfigError, InputError
from tokenmill_core.readers import Format, Piece, ReadOptions, read_piece, read_pieces
from tokenmill_core.readers.lines import split


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


def test_a_line_is_a_document_if_one_says_so(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\n  two \n\xff\n \t\nth\rree\n\xe3\x80\x80\nla\0st")
    outcome = read_as(path, Format.TEXT, text_unit="line", carry=("url",))
    assert list(zip(outcome.places, outcome.texts, strict=True)) == [
        (1, "one"),
        (3, "  two "),
        (6, "th\rree"),
        (8, "la\ufffdst"),
    ]
    assert outcome.column("url") == [None] * 4
    assert outcome.rejected == [(4, "invalid_utf8"), (7, "blank_text")]
    assert outcome.account.notes == {"blank_lines": 2, "byte_order_marks": 1, "repaired_characters": 1}


def test_source_code_is_never_cut(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("a\nb\n")
    assert read_as(path, Format.SOURCE, text_unit="line").texts == ["a\nb\n"]


def test_parts_between_separators_are_documents_if_one_says_so(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n<|end|>\ntwo\r\n\n<|end|>\n<|end|>b\xff<|end|>three<|end|>")
    outcome = read_as(path, Format.TEXT, text_unit="separator", separator="<|end|>")
    assert list(zip(outcome.places, outcome.texts, strict=True)) == [(1, "one\n"), (2, "\ntwo\r\n\n"), (5, "three")]
    assert outcome.rejected == [(4, "invalid_utf8")]
    assert outcome.account.notes == {"blank_parts": 1}


@pytest.mark.parametrize("unit", [{"text_unit": "line"}, {"text_unit": "separator", "separator": "\n\n"}])
@pytest.mark.parametrize(("encoding", "name"), [("utf-16", "UTF-16"), ("utf-32", "UTF-32")])
def test_files_to_be_cut_that_are_no_utf8_are_refused_by_name(tmp_path, unit, encoding, name):
    path = tmp_path / "a.txt"
    path.write_bytes("some text".encode(encoding))
    with pytest.raises(InputError, match=f"a.txt is {name}; convert it"):
        read_as(path, Format.TEXT, **unit)


@given(
    st.binary(max_size=60).map(lambda b: bytes(x % 3 + 97 for x in b)), st.sampled_from([b"a", b"ab", b"aab", b"aa"])
)
def test_how_a_stream_is_chunked_does_not_matter(content, separator):
    expected = content.split(separator)
    expected = expected if expected[-1] else expected[:-1]
    for size in range(1, 8):
        chunks = [content[i : i + size] for i in range(0, len(content), size)]
        assert list(split(chunks, separator)) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"text_unit": "separator"}, "text_unit is 'separator' and there is none; give it with --separator"),
        ({"text_unit": "separator", "separator": ""}, "there is none"),
        ({"separator": "x"}, "separator is 'x', but text_unit is 'document'"),
        ({"text_unit": "word"}, "text_unit"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        validate_config(ReadOptions, settings, "settings")


@pytest.mark.parametrize("unit", [{"text_unit": "line"}, {"text_unit": "separator", "separator": "\n"}])
def test_memory_is_bounded_by_the_batch_not_the_file(tmp_path, unit):
    path = tmp_path / "a.txt.gz"
    line = b"x" * (1 << 20) + b"\n"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(120):
            file.write(line)
    tracemalloc.start()
    try:
        rows = sum(batch.num_rows for batch in read_piece(piece(path), ReadOptions(**unit), Account()))
        # 8 KiB of this gzip file expand to 8 MiB at once.
        assert tracemalloc.get_traced_memory()[1] < 4 * MAX_BATCH_BYTES + (8 << 20)
    finally:
        tracemalloc.stop()
    assert rows == 120
