"""CSV and TSV at reader level."""

import csv
import gzip
import io
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import read

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers import Format, Piece, ReadOptions, read_piece
from tokenmill_core.readers.csv_records import _Feed, csv_records

BOM = b"\xef\xbb\xbf"


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="a.csv"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write_file


def test_a_row_is_a_document_and_its_row_the_line_it_begins_in(write):
    content = b'id,text,url\n7,one,u1\nb,"two, ""quoted""\n\nover lines",u2\n,three,\n'
    outcome = read(write(content), Format.CSV, carry=("url", "none"))
    assert outcome.rows == [
        {"id": "7", "text": "one", "file": "set/a", "row": 2, "url": "u1", "none": None},
        {"id": "b", "text": 'two, "quoted"\n\nover lines', "file": "set/a", "row": 3, "url": "u2", "none": None},
        {"id": None, "text": "three", "file": "set/a", "row": 6, "url": "", "none": None},
    ]
    assert (outcome.rejects, outcome.account.notes) == ([], {})


def test_tabs_separate_tsv_and_commas_do_not(write):
    outcome = read(write(b"text\tid\na, b\t1\n"), Format.TSV)
    assert (outcome.texts, outcome.column("id")) == (["a, b"], ["1"])


def test_bad_rows_cost_themselves(write):
    content = b"id,text\n1\n2,b,c\n3,\n4, \t\n5,caf\xe9\n6,a\rb\n7,good\n\n8,a\0b\n"
    outcome = read(write(content), Format.CSV)
    assert list(zip(outcome.places, outcome.texts, strict=True)) == [(8, "good"), (10, "a\ufffdb")]
    assert outcome.rejected == [
        (2, "wrong_field_count"),
        (3, "wrong_field_count"),
        (4, "empty_text"),
        (5, "blank_text"),
        (6, "invalid_utf8"),
        (7, "invalid_csv"),
    ]
    assert outcome.rejects[4].raw == b"5,caf\xe9"
    assert outcome.account.notes == {"blank_lines": 1, "repaired_characters": 1}
    with pytest.raises(InputError, match=r"a\.csv:2: wrong_field_count"):
        read(write(content), Format.CSV, strict=True)


@pytest.mark.parametrize("bad", [b'2,"never closed', b'2,"closed"too early', b'2,"x"y"'])
def test_quotes_that_do_not_pair_up_cost_their_line_only(write, bad):
    rows = b"".join(b"%d,text %d\n" % (i, i) for i in range(3, 1000))
    outcome = read(write(b"id,text\n1,one\n" + bad + b"\n" + rows + b'1000,"the ""last"""\n'), Format.CSV)
    assert outcome.rejected == [(3, "invalid_csv")]
    assert outcome.rejects[0].raw == bad
    assert outcome.places == [2, *range(4, 1002)]
    assert outcome.texts[-1] == 'the "last"'


def test_a_quote_that_nobody_closes_takes_neither_the_file_nor_the_memory(monkeypatch):
    monkeypatch.setattr("tokenmill_core.readers.csv_records._MAX_RECORD_BYTES", 10_000)
    lines = [b'1,"open', *(b"%d,text" % i for i in range(2, 5000)), b'5000,"closed"']
    records = list(csv_records(iter(lines), ",", Account()))
    assert [record.problem for record in records] == ["invalid_csv", *[None] * 4999]
    assert records[-1].values == ["5000", "closed"]


@pytest.mark.parametrize("last", [b"", b'"x', b'"\n1,one'])
def test_lines_that_each_open_a_quote_are_drawn_twice_at_most(monkeypatch, last):
    drawn = 0
    draw = _Feed.__next__

    def counted(feed):
        nonlocal drawn
        drawn += 1
        return draw(feed)

    monkeypatch.setattr(_Feed, "__next__", counted)
    lines = [b'a""","c'] * 1000
    records = list(csv_records(iter([*lines, *last.split(b"\n")]), ",", Account()))
    if last.endswith(b"one"):  # the quotes end after all
        assert [(record.problem, len(record.lines)) for record in records] == [(None, 1001), (None, 1)]
    else:
        assert [(record.row, record.lines, record.problem) for record in records[:1000]] == [
            (row, [line], "invalid_csv") for row, line in enumerate(lines, 1)
        ]
    assert drawn < 3 * len(lines) + 10


def test_marks_and_line_ends_change_nothing(write):
    plain = b'id,text\n1,one\n2,"t\r\nwo"\n3,three\n4,"bad\n'
    windows = BOM + plain.replace(b"\r\n", b"\0").replace(b"\n", b"\r\n").replace(b"\0", b"\r\n")
    first, second = read(write(plain), Format.CSV), read(write(windows), Format.CSV)
    assert first.rows == second.rows
    assert first.account.dropped == second.account.dropped == {"invalid_csv": (1, 6)}
    assert second.account.notes == {"byte_order_marks": 1}
    assert first.texts[1] == "t\r\nwo"


def test_files_that_were_joined_have_their_headers_again(write):
    part = BOM + b"id,text\n1,one\n"
    outcome = read(write(part + part), Format.CSV)
    assert outcome.texts == ["one", "one"]
    assert outcome.account.notes == {"byte_order_marks": 2, "repeated_headers": 1}


def test_a_missing_column_fails_and_lists_those_there_are(write):
    with pytest.raises(InputError, match=r"a\.csv has no column 'text'.*'content', 'url'.*--text-field"):
        read(write(b"content,url\na,b\n"), Format.CSV)
    assert read(write(b"content,url\na,b\n"), Format.CSV, text_field="content").texts == ["a"]
    with pytest.raises(InputError, match="has no column 'text'"):
        read(write(b'"text\nabc\n'), Format.CSV)


@pytest.mark.parametrize(("encoding", "name"), [("utf-16", "UTF-16"), ("utf-32", "UTF-32")])
def test_other_encodings_are_refused_by_name(write, encoding, name):
    with pytest.raises(InputError, match=f"is {name}; convert it to UTF-8"):
        read(write("text\nabc\n".encode(encoding)), Format.CSV)


def test_empty_and_compressed_files(write):
    assert read(write(b""), Format.CSV).account.notes == {"empty_files": 1}
    assert read(write(b"id,text\n"), Format.CSV).rows == []
    assert read(write(gzip.compress(b"text\nabc"), "a.csv.gz"), Format.CSV).texts == ["abc"]


def test_a_huge_value_between_small_ones_in_bounded_memory(write):
    huge = "word, " * (8 << 20)
    path = write(f'text\na\n"{huge}"\nb'.encode())
    piece = Piece(url=str(path), name="f", format=Format.CSV, bytes=0)
    shapes = []
    tracemalloc.start()
    try:
        for batch in read_piece(piece, ReadOptions(), Account()):
            shapes.append([len(text.as_py()) for text in batch.column("text")])
        assert tracemalloc.get_traced_memory()[1] < 10 * len(huge)
    finally:
        tracemalloc.stop()
    assert shapes == [[1], [len(huge)], [1]]


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), min_size=1).filter(lambda t: t.strip())


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1))
def test_whatever_python_writes_is_read_back(tmp_path_factory, rows):
    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL).writerows([("text", "note"), *rows])
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(buffer.getvalue().encode())
    outcome = read(path, Format.CSV, carry=("note",))
    assert list(zip(outcome.texts, outcome.column("note"), strict=True)) == [r for r in rows if r != ("text", "note")]
