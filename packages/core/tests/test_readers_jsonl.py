"""JSON Lines at reader level: each test feeds real bytes and compares documents, reasons and counts."""

import gzip
import json
import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tokenmill_core.documents import DOCUMENT_SCHEMA, MAX_BATCH_BYTES, Account, Reject
from tokenmill_core.errors import InputError
from tokenmill_core.readers import Format, Piece, ReadOptions, read_piece

BOM = b"\xef\xbb\xbf"


@dataclass
class Outcome:
    documents: list[dict[str, Any]]
    account: Account
    rejects: list[Reject] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [document["text"] for document in self.documents]

    @property
    def ids(self) -> list[str | None]:
        return [document["id"] for document in self.documents]

    @property
    def rejected(self) -> list[tuple[int, str]]:
        return [(reject.row, reject.reason) for reject in self.rejects]


def read(path: Path, **options: Any) -> Outcome:
    rejects: list[Reject] = []
    account = Account(on_reject=rejects.append)
    piece = Piece(url=str(path), name=f"set/{path.name}", format=Format.JSONL, bytes=path.stat().st_size)
    documents = []
    for batch in read_piece(piece, ReadOptions(**options), account):
        batch.validate(full=True)
        assert batch.schema.equals(DOCUMENT_SCHEMA)
        documents += batch.to_pylist()
    assert account.documents == len(documents) + sum(count for count, _ in account.dropped.values())
    kept_bytes = sum(len(document["text"].encode()) for document in documents)
    assert account.bytes == kept_bytes + sum(size for _, size in account.dropped.values())
    return Outcome(documents, account, rejects)


@pytest.fixture
def write(tmp_path: Path):
    def write_file(content: bytes | list[Any], name: str = "a.jsonl") -> Path:
        if isinstance(content, list):
            content = b"".join(json.dumps(value).encode() + b"\n" for value in content)
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write_file


SEVEN_LINES = b'{"text":"one","id":"a"}\n\n42\n"context"\n["text"]\n{"text":\n{"text":"two"}\n'


def test_bad_lines_cost_themselves_and_are_counted_by_reason_with_their_line(write):
    outcome = read(write(SEVEN_LINES))
    assert [(d["text"], d["row"], d["file"], d["id"]) for d in outcome.documents] == [
        ("one", 1, "set/a.jsonl", "a"),
        ("two", 7, "set/a.jsonl", None),
    ]
    assert outcome.rejected == [
        (3, "not_an_object"),
        (4, "not_an_object"),
        (5, "not_an_object"),
        (6, "invalid_json"),
    ]
    assert outcome.account.dropped == {"not_an_object": (3, 2 + 9 + 8), "invalid_json": (1, 8)}
    assert outcome.account.notes == {"blank_lines": 1}
    assert outcome.rejects[-1].raw == b'{"text":'


def test_strict_stops_at_the_first_bad_line_and_names_it(write):
    path = write(SEVEN_LINES)
    with pytest.raises(InputError, match=rf"{path}:3: not_an_object.*b'42'.*--strict"):
        read(path, strict=True)


def test_strict_passes_good_files(write):
    assert read(write([{"text": "a"}, {"text": "b"}]), strict=True).texts == ["a", "b"]


def test_byte_order_mark_and_crlf_change_nothing(write):
    plain = b'{"text":"one"}\n{"text":"t\\r\\nwo"}\n{"text":"three \xc3\xa9"}\n'
    windows = BOM + plain.replace(b"\n", b"\r\n")
    first, second = read(write(plain)), read(write(windows))
    assert first.documents == second.documents
    assert (first.account.documents, first.account.bytes) == (second.account.documents, second.account.bytes)
    assert first.texts[1] == "t\r\nwo"
    assert second.account.notes == {"byte_order_marks": 1}


def test_byte_order_mark_in_the_middle_of_concatenated_files(write):
    part = BOM + b'{"text":"one"}\r\n{"text":"two"}\r\n'
    outcome = read(write(part + part))
    assert outcome.texts == ["one", "two", "one", "two"]
    assert outcome.account.notes == {"byte_order_marks": 2}


def test_crlf_rejects_count_the_same_bytes(write):
    assert read(write(b"42\r\nnope\r\n")).account.dropped == read(write(b"42\nnope\n")).account.dropped


def test_carriage_returns_alone_end_no_line(write):
    outcome = read(write(b'{"text":"one"}\r{"text":"two"}\n{"text":"three"}\n'))
    assert outcome.texts == ["three"]
    assert outcome.rejected == [(1, "invalid_json")]


def test_a_missing_final_newline_loses_nothing(write):
    assert read(write(b'{"text":"one"}\n{"text":"two"}')).texts == ["one", "two"]


def test_unicode_line_separators_inside_a_value_end_no_line(write):
    assert read(write('{"text":"a\u2028b\u0085c\x0b"}\n'.replace("\x0b", "\\u000b").encode())).texts == [
        "a\u2028b\u0085c\x0b"
    ]


def test_broken_characters_are_replaced_and_counted(write):
    lines = rb"""{"text":"lone \ud83d end"}
{"text":"pair \ud83d\udc4d"}
{"text":"a\u0000b"}
{"text":"literal \\u0000 stays"}
{"text":"low \udc4d\ud83d"}
"""
    outcome = read(write(lines))
    assert outcome.texts == [
        "lone \ufffd end",
        "pair \U0001f44d",
        "a\ufffdb",
        "literal \\u0000 stays",
        "low \ufffd\ufffd",
    ]
    assert outcome.account.notes == {"repaired_characters": 4}
    assert outcome.account.dropped == {}


def test_broken_characters_in_an_id_are_replaced_too(write):
    assert read(write(rb'{"text":"a","id":"x\ud83d"}')).ids == ["x\ufffd"]


def test_a_latin_1_byte_costs_its_line_only(write):
    outcome = read(write(b'{"text":"one"}\n{"text":"caf\xe9"}\n{"text":"three"}\n'))
    assert outcome.texts == ["one", "three"]
    assert outcome.rejected == [(2, "invalid_utf8")]
    assert outcome.rejects[0].raw == b'{"text":"caf\xe9"}'


def test_surrogates_encoded_as_bytes_are_invalid_utf8(write):
    outcome = read(write(b'{"text":"\xed\xa0\xbd"}\n{"text":"ok"}\n'))
    assert outcome.rejected == [(1, "invalid_utf8")]


@pytest.mark.parametrize(
    ("encoding", "mark", "name"),
    [
        ("utf-16-le", b"\xff\xfe", "UTF-16"),
        ("utf-16-be", b"\xfe\xff", "UTF-16"),
        ("utf-32-le", b"\xff\xfe\0\0", "UTF-32"),
        ("utf-32-be", b"\0\0\xfe\xff", "UTF-32"),
    ],
)
def test_a_file_in_another_encoding_is_refused_by_its_name(write, encoding, mark, name):
    path = write(mark + '{"text":"a"}\n'.encode(encoding))
    with pytest.raises(InputError, match=rf"{path} is {name}; convert it to UTF-8 \(iconv -f {name} "):
        read(path)


def test_each_kind_of_absent_text_has_its_own_count(write):
    values = [{"id": 1}, {"text": None}, {"text": ""}, {"text": "  \t\n\u3000"}, {"text": 123}, {"text": ["a"]}]
    outcome = read(write([*values, {"body": "x"}, {"text": {"a": 1}}, {"text": True}, {"text": "kept"}]))
    assert outcome.texts == ["kept"]
    assert [reason for _, reason in outcome.rejected] == [
        "missing_text",
        "null_text",
        "empty_text",
        "blank_text",
        "non_string_text",
        "non_string_text",
        "missing_text",
        "non_string_text",
        "non_string_text",
    ]
    assert outcome.account.dropped["missing_text"] == (2, len('{"id": 1}') + len('{"body": "x"}'))


def test_a_file_without_the_text_field_fails_and_lists_its_keys(write):
    path = write([{"content": "a", "url": "u"}, {"content": "b", "lang": "en"}])
    with pytest.raises(InputError, match=r"'text'.*'content', 'url', 'lang'.*--text-field") as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert read(path, text_field="content").texts == ["a", "b"]


def test_one_object_with_the_text_field_is_enough(write):
    outcome = read(write([{"content": "a"}, {"text": None}]))
    assert [reason for _, reason in outcome.rejected] == ["missing_text", "null_text"]


def test_empty_objects_are_objects_without_the_text_field(write):
    with pytest.raises(InputError, match="keys seen are none"):
        read(write([{}, {}]))


def test_a_file_of_rubbish_is_counted_not_refused(write):
    outcome = read(write(b"42\nhello\n"))
    assert outcome.rejected == [(1, "not_an_object"), (2, "invalid_json")]


def test_metadata_and_ids_of_mixed_types_all_pass_whatever_the_order(write):
    rows: list[dict[str, Any]] = [{"id": i, "text": f"t{i}", "meta": None} for i in range(20_000)]
    rows += [{"id": "x", "text": "a", "meta": {"a": 1}}, {"id": 7, "text": "b", "meta": "x"}]
    rows += [{"id": "7", "text": "c", "meta": [1], "more": 2.5}, {"id": None, "text": "d"}, {"id": True, "text": "e"}]
    forward, backward = read(write(rows)), read(write(rows[::-1]))
    assert len(forward.documents) == len(rows)
    assert forward.ids[-5:] == ["x", "7", "7", None, None]
    assert sorted(forward.texts) == sorted(backward.texts)
    assert forward.account.dropped == {}


def test_integer_ids_beyond_64_bits_keep_every_digit(write):
    big = 123456789012345678901234567890
    outcome = read(write([{"id": big, "text": "a"}, {"id": big + 1, "text": "b"}, {"id": 1e30, "text": "c"}]))
    assert outcome.ids == [str(big), str(big + 1), None]
    assert read(write([{"id": -(2**63), "text": "a"}, {"id": 2**64 - 1, "text": "b"}])).ids == [
        str(-(2**63)),
        str(2**64 - 1),
    ]


def test_the_id_field_can_be_named(write):
    assert read(write([{"text": "a", "url": "u", "id": "no"}]), id_field="url").ids == ["u"]


def test_nan_and_infinity_in_metadata_do_not_cost_the_document(write):
    assert read(write(b'{"score":NaN,"text":"a"}\n{"text":"b","x":-Infinity}\n')).texts == ["a", "b"]


def test_deep_nesting_and_endless_numbers_cost_their_line(write):
    deep = b'{"text":"x","a":' + b"[" * 100_000 + b"}"
    digits = b'{"text":"x","a":' + b"9" * 10_000 + b",}"
    outcome = read(write(deep + b"\n" + digits + b'\n{"text":"ok"}\n'))
    assert outcome.texts == ["ok"]
    assert outcome.rejected == [(1, "invalid_json"), (2, "invalid_json")]


def test_a_json_file_that_is_one_array_is_refused_clearly(write):
    path = write(b'\n  [{"text":"a"}]', "a.json")
    with pytest.raises(InputError, match=r"a\.json holds one JSON array.*jq"):
        read(path)
    assert read(write([{"text": "a"}], "b.json")).texts == ["a"]


def test_rows_with_blank_lines_count_physical_lines(write):
    outcome = read(write(b'\n  \t\n{"text":"a"}\n\r\n{"text":"b"}'))
    assert [d["row"] for d in outcome.documents] == [3, 5]
    assert outcome.account.notes == {"blank_lines": 3}


def test_an_empty_file_gives_no_documents_and_a_note(write):
    outcome = read(write(b""))
    assert outcome.documents == []
    assert outcome.account.notes == {"empty_files": 1}


def test_a_huge_line_between_small_ones_without_a_final_newline(write):
    huge = "word " * (10 << 20)
    path = write(json.dumps({"text": "a"}).encode() + b"\n" + json.dumps({"text": huge}).encode() + b'\n{"text":"b"}')
    account, shapes, rows = Account(), [], []
    piece = Piece(url=str(path), name="f", format=Format.JSONL, bytes=0)
    for batch in read_piece(piece, ReadOptions(), account):
        shapes.append([len(text.as_py()) for text in batch.column("text")])
        rows += batch.column("row").to_pylist()
    assert shapes == [[1], [len(huge)], [1]]
    assert rows == [1, 2, 3]
    assert account.bytes == len(huge) + 2


def test_memory_is_bounded_by_the_batch_not_the_file(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    num_lines, line = 120, json.dumps({"text": "x" * (1 << 20)}).encode() + b"\n"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(num_lines):
            file.write(line)
    piece = Piece(url=str(path), name="f", format=Format.JSONL, bytes=0)
    sizes = []
    tracemalloc.start()
    try:
        for batch in read_piece(piece, ReadOptions(), Account()):
            sizes.append(batch.num_rows)
            assert batch.column("text").nbytes <= MAX_BATCH_BYTES + 8 * (batch.num_rows + 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(sizes) == num_lines
    # 8 KiB of this gzip file expand to 8 MiB at once.
    assert peak < 4 * MAX_BATCH_BYTES + (8 << 20) < num_lines << 20


def test_many_tiny_documents_stay_in_batches_of_bounded_rows(write):
    path = write(b'{"text":"a"}\n' * 70_000)
    piece = Piece(url=str(path), name="f", format=Format.JSONL, bytes=0)
    assert [batch.num_rows for batch in read_piece(piece, ReadOptions(), Account())] == [65_536, 70_000 - 65_536]


def test_a_file_that_is_gone_is_named(tmp_path):
    piece = Piece(url=str(tmp_path / "gone.jsonl"), name="f", format=Format.JSONL, bytes=0)
    with pytest.raises(InputError, match=r"cannot read .*gone\.jsonl"):
        list(read_piece(piece, ReadOptions(), Account()))
