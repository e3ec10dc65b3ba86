"""A file of lines cut into byte ranges reads as the whole file does: same documents, rows, rejects and notes."""

import gzip
import json
from collections import Counter

import fsspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from reading import read

from tokenmill_core.errors import InputError
from tokenmill_core.inputs import expand_inputs
from tokenmill_core.pieces import plan_pieces
from tokenmill_core.readers import Format, ReadOptions
from tokenmill_core.readers.line_ranges import line_ranges

BOM = b"\xef\xbb\xbf"
LINES = st.one_of(
    st.text(max_size=40).map(lambda text: json.dumps({"text": text, "id": len(text)}).encode()),
    st.sampled_from([b"", b"\r", BOM, b"42", b'{"text":', b'{"a":1}', b'{"text":null}', b'{"text":"caf\xe9"}', b"\0"]),
    st.binary(max_size=30),
)
CONTENT = st.tuples(
    st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\n" + BOM])).map(b"".join)),
    st.sampled_from([b"", b"x"]),
).map(lambda parts: b"".join(parts[0]) + parts[1])


def parts_of(path, target, **options):
    groups = expand_inputs([str(path)])
    return plan_pieces(groups, ReadOptions(**options), target)


def joined(path, format, pieces, **options):
    outcomes = [read(path, format, piece=piece, **options) for piece in pieces]
    return (
        [row for outcome in outcomes for row in outcome.rows],
        [reject for outcome in outcomes for reject in outcome.rejects],
        sum((Counter(outcome.account.notes) for outcome in outcomes), Counter()),
        sum(outcome.account.bytes for outcome in outcomes),
    )


def attempt(path, format, target, **options):
    """What reading gives, or the message it is refused with."""
    try:
        return joined(path, format, parts_of(path, target, **options), **options), None
    except InputError as error:
        return None, str(error)


def same_for_every_target(tmp_path_factory, content, target, name, format, **options):
    path = tmp_path_factory.mktemp("ranges") / name
    path.write_bytes(content)
    whole = parts_of(path, 1 << 30, **options)
    assert [piece.byte_range for piece in whole] == [None]
    expected, refused = attempt(path, format, 1 << 30, **options)
    found, also_refused = attempt(path, format, target, **options)
    assert (found, also_refused) == (expected, refused)
    if refused:
        return
    pieces = parts_of(path, target, **options)
    if len(content) > target:
        assert [piece.byte_range[0] for piece in pieces] == [0, *(piece.byte_range[1] for piece in pieces[:-1])]
        assert pieces[-1].byte_range[1] == len(content)
        assert all(piece.bytes >= target for piece in pieces[:-1])


@given(CONTENT, st.integers(1, 200))
@example(b'{"text":"a"}\n{"text":"b"}\n', 13)
@example(b'\n\n{"text":"a"}\n', 1)
@example(b'{"other":"a"}\n{"text":"b"}\n', 3)
@example(b'{"other":"a"}\n{"other":"b"}\n', 3)
@example('{"text":"a"}\n{"text":"b"}\n'.encode("utf-16"), 3)
def test_json_lines(tmp_path_factory, content, target):
    same_for_every_target(tmp_path_factory, content, target, "a.jsonl", Format.JSONL)


@given(CONTENT, st.integers(1, 200))
def test_text_with_a_document_a_line(tmp_path_factory, content, target):
    same_for_every_target(tmp_path_factory, content, target, "a.txt", Format.TEXT, text_unit="line")


@given(st.binary(max_size=200).map(lambda b: bytes(10 if x % 4 == 0 else x for x in b)), st.integers(1, 60))
def test_ranges_cover_the_file_and_end_at_line_ends(tmp_path_factory, content, target):
    path = tmp_path_factory.mktemp("ranges") / "a"
    path.write_bytes(content)
    ranges = line_ranges(str(path), target)
    assert b"".join(content[part.start : part.stop] for part in ranges) == content
    for part in ranges:
        assert part.first_row == 1 + content[: part.start].count(b"\n")
        assert part.stop == len(content) or content[part.start : part.stop].endswith(b"\n")
        # No shorter run of lines would reach the target.
        assert content[part.start : part.stop - 1].rfind(b"\n") + 1 < target
    again = line_ranges(str(path), target)
    assert again == ranges


def test_chunks_of_the_count_do_not_show(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(b'{"text":"%d"}\n' % 7**i for i in range(300)))
    expected = line_ranges(str(path), 100)
    for size in (1, 7, 99, 1000):
        monkeypatch.setattr("tokenmill_core.readers.line_ranges._CHUNK_BYTES", size)
        assert line_ranges(str(path), 100) == expected


def test_a_line_larger_than_the_target_is_a_range_of_its_own_or_ends_one(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text":"a"}\n' + json.dumps({"text": "x" * 1000}).encode() + b'\n{"text":"b"}\n{"text":"c"}')
    pieces = parts_of(path, 50)
    assert [piece.first_row for piece in pieces] == [1, 3]
    assert [row["row"] for row in joined(path, Format.JSONL, pieces)[0]] == [1, 2, 3, 4]


def test_a_field_that_only_late_lines_have_is_enough(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"content":"a"}\n' * 100 + b'{"text":"b"}\n')
    rows, rejects, _, _ = joined(path, Format.JSONL, parts_of(path, 200))
    assert [row["row"] for row in rows] == [101]
    assert len(rejects) == 100


def test_a_file_without_the_field_fails_before_any_of_it_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"content":"a"}\n' * 100)
    with pytest.raises(InputError, match=r"no object has the text field 'text'.*'content'"):
        parts_of(path, 200)
    (tmp_path / "b.json").write_bytes(b'[{"text":"a"},\n{"text":"b"}]\n')
    with pytest.raises(InputError, match="holds one JSON array"):
        parts_of(tmp_path / "b.json", 5)


@pytest.mark.parametrize(("name", "compress"), [("a.jsonl.gz", True), ("a.jsonl", True), ("a.jsonl.gz", False)])
def test_what_is_or_seems_compressed_is_not_cut(tmp_path, name, compress):
    content = b'{"text":"abc"}\n' * 1000
    (tmp_path / name).write_bytes(gzip.compress(content) if compress else content)
    assert [piece.byte_range for piece in parts_of(tmp_path / name, 5)] == [None]


def test_formats_whose_lines_do_not_stand_alone_are_not_cut(tmp_path):
    for name, options in (("a.csv", {}), ("a.txt", {}), ("a.py", {"text_unit": "line"})):
        (tmp_path / name).write_bytes(b"text\nabc\n" * 100)
        assert [piece.byte_range for piece in parts_of(tmp_path / name, 5, **options)] == [None]
    separated = {"text_unit": "separator", "separator": "\n"}
    assert [piece.byte_range for piece in parts_of(tmp_path / "a.txt", 5, **separated)] == [None]


def test_files_behind_a_url_are_cut_alike():
    url = "memory://test-line-ranges/a.jsonl"
    with fsspec.open(url, "wb") as file:
        file.write(b"".join(b'{"text":"%d"}\n' % i for i in range(1000)))
    pieces = parts_of(url, 1000)
    assert len(pieces) > 10
    rows = joined(url, Format.JSONL, pieces)[0]
    assert [(row["row"], row["text"]) for row in rows] == [(i + 1, str(i)) for i in range(1000)]


def test_a_file_that_lost_its_end_since_it_was_cut_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text":"abc"}\n' * 100)
    pieces = parts_of(path, 500)
    path.write_bytes(b'{"text":"abc"}\n' * 90)
    with pytest.raises(InputError, match=r"cannot read .*a\.jsonl: it became shorter"):
        joined(path, Format.JSONL, pieces)
