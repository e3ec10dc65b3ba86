"""Lines of JSON read many at a time: what comes of them is what comes of them one by one, whatever their bytes."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenmill_core.documents import MAX_BATCH_BYTES, Account, Reject
from tokenmill_core.errors import InputError
from tokenmill_core.readers import Format, Piece, ReadOptions, jsonl, read_piece
from tokenmill_core.readers.batches import MAX_BATCH_ROWS, Sized, gather
from tokenmill_core.readers.json_scan import scan
from tokenmill_core.readers.line_blocks import line_blocks

FIRST = b'{"text":"first"}'
CARRY = ("meta", "\u043f\u043e\u043b\u0435")


@pytest.fixture(autouse=True, scope="module")
def scan_small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_MIN_SCANNED_BYTES", 0)
        yield


def read(content: bytes, **options: Any) -> tuple[Any, ...]:
    """Batches, account, rejects and error of a file."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(content)
        file.flush()
        rejects: list[Reject] = []
        account = Account(on_reject=rejects.append)
        piece = Piece(url=file.name, name="set/a.jsonl", format=Format.JSONL, bytes=len(content))
        batches: list[pa.RecordBatch] = []
        error = None
        try:
            for batch in read_piece(piece, ReadOptions(**options), account):
                batch.validate(full=True)
                batches.append(batch)
        except InputError as caught:
            error = str(caught).replace(file.name, "FILE")
        counts = (account.documents, account.bytes, account.dropped, account.notes)
        return batches, counts, rejects, error


def assert_same(content: bytes, **options: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_MAX_SCANNED_BYTES", 0)
        expected = read(content, **options)
    assert read(content, **options) == expected


def scanned(*lines: bytes, names: tuple[str, ...] = ("text", "id", *CARRY)) -> list[tuple[str | None, ...] | None]:
    """For each line what stands in its fields; none where it is odd."""
    (block,) = line_blocks([b"".join(line + b"\n" for line in lines[:1])])
    found = scan(block, names)
    assert len(found.plain) + len(found.odd) == 1
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True)) or [None]


def pad(line: str) -> str:
    """The same with a text so long that the quote that ends it stands in another vector."""
    return line.replace('"x"', '"' + "x" * 70 + '"')


PLAIN = {
    '{"text":"x"}': ("x", None),
    ' {\t"text" :\r"x" , "id" : 7 } \r': ("x", "7"),
    '{"id":null,"text":"x"}': ("x", None),
    '{"id":"","text":" x"}': (" x", ""),
    '{"id":-12,"text":"x"}': ("x", "-12"),
    '{"id":9999999999999999999,"text":"x"}': ("x", "9999999999999999999"),
    '{"id":"\\u00e9\\n","text":"\\"\\\\\\/\\b\\f\\n\\r\\t"}': ('"\\/\b\f\n\r\t', "\u00e9\n"),
    '{"text":"\\u0041\\u00DF\\u4e2d\\ud83d\\uDC4d\\u2028\\uffff"}': ("A\u00df\u4e2d\U0001f44d\u2028\uffff", None),
    '{"text":"\u0416\u4e2d\U0001f44d\x7f"}': ("\u0416\u4e2d\U0001f44d\x7f", None),
    '{"text":"a","text":"b","id":1,"id":"c"}': ("b", "c"),
    '{"text":3,"text":"b","id":"c","id":null}': ("b", None),
    '{"a":{"text":"no"},"text":"x","b":["text",{"id":1}]}': ("x", None),
    '{"text":"\\\\u0000 \\"text\\":\\"no\\""}': ('\\u0000 "text":"no"', None),
    '{"a":[],"b":{},"c":[[],{"d":[]}],"e":true,"f":false,"g":null,"text":"x"}': ("x", None),
    '{"a":[0,-0,1.5,-2e10,3E-1,4.0e+2,18446744073709551616],"text":"x"}': ("x", None),
    '{"":1,"tex":2,"textt":3,"text":"x"}': ("x", None),
    '{"text":"x","a":' + "[" * 64 + "]" * 64 + "}": ("x", None),
}


@pytest.mark.parametrize("line", PLAIN, ids=repr)
def test_plain_lines_are_scanned(line):
    assert scanned(line.encode(), names=("text", "id")) == [PLAIN[line]]
    assert_same(b"\n".join([FIRST, line.encode(), pad(line).encode()]))


def test_carried_strings_integers_and_booleans_are_scanned():
    line = '{"text":"x","id":1,"meta":%s,"\u043f\u043e\u043b\u0435":"\\u0416"}'
    assert [scanned((line % v).encode())[0][2] for v in ("3", "true", "false", "null", '""')] == [
        "3",
        "true",
        "false",
        None,
        "",
    ]
    assert scanned((line % "1").encode())[0][3] == "\u0416"


ODD = [
    *(
        "",
        " ",
        "\r",
        "{}",
        "{ }",
        "}",
        "[]",
        "42",
        '"text"',
        "null",
        "{",
        '{"text"',
        '{"text":',
        '{"text":"x"',
        "\ufeff{",
    ),
    *('{"text":""}', '{"text":" "}', '{"text":"\\n\\t\\r\\f\\u3000\\u001c"}', '{"text":"\u3000\u2028 "}', '{"id":"x"}'),
    *('{"text":"\\u0000"}', '{"text":"a\0b"}', '{"text":"a\x1fb"}', '{"text":"a\tb"}', '{"text":"x","id":"\\u0000"}'),
    *('{"text":"\\ud800"}', '{"text":"\\udc00"}', '{"text":"\\ud83dx"}', '{"text":"\\ud83d\\u0041"}'),
    *(
        '{"text":"\\udc00\\udc00"}',
        '{"text":"\\ud83d\\n"}',
        '{"text":"\\ud83d\\ud83d"}',
        '{"text":"\\ud83d\\ue000"}',
        '{"text":"\\u12g4"}',
    ),
    *('{"text":"\\u123"}', '{"text":"\\x41"}', '{"text":"\\U0041"}', '{"text":"\\', '{"text":"\\u12', '{"text":"x\\"}'),
    *('{"te\\u0078t":"x"}', '{"text":"x","\\u0061":1}', '{"text":"x","a\tb":1}', '{"text":"x",}', '{,"text":"x"}'),
    *('{"text":"x"}}', '{"text":"x"} {', '{"text":"x"}x', '{"text" "x"}', '{"text":"x" "id":1}', '{"text":"x";"a":1}'),
    *('{"text":null}', '{"text":7}', '{"text":["x"]}', '{"text":{"text":"x"}}', '{"text":true}', "{'text':'x'}"),
    *('{"text":"x","text":null}', '{"text":"x","text":""}', '{"a":{"text":"x"}}', '{"a":"text","b":"x"}', '{text:"x"}'),
    *('{"text":"x","a":' + value + "}" for value in ("01", "-", "+1", ".5", "1.", "1.e1", "1e", "1e+", "--1", "0x1")),
    *('{"text":"x","a":' + value + "}" for value in ("NaN", "Infinity", "-Infinity", "tru", "True", "nul", "falsy")),
    *(
        '{"text":"x","a":' + value + "}"
        for value in ("[1,]", "[,1]", "[1 2]", '{"b"}', '{"b":1,}', "{1:2}", "[}", "{]")
    ),
    *('{"text":"x","a":' + value + "}" for value in ("[", "[1", "[[]", '{"b":[}', "]", '["\\u0000"]', '{"b":"\x01"}')),
    *('{"text":"x","id":' + value + "}" for value in ("1.0", "1e5", "-0", "true", "false", "[]", "{}", "-0.0", "NaN")),
    *('{"text":"x","id":' + value + "}" for value in (str(2**64 - 1), str(2**64), str(-(2**63)), "9" * 30, "9" * 400)),
    '{"text":"x","id":1,"id":2.5}',
    '{"text":"x","a":' + "[" * 65 + "]" * 65 + "}",
    '{"text":"x","a":1' + "0" * 64 + "}",
]
ODD_BYTES = [
    *(
        b'{"text":"\xe9"}',
        b'{"text":"\xc0\x80"}',
        b'{"text":"\xed\xa0\xbd"}',
        b'{"text":"\xf4\x90\x80\x80"}',
        b"\xff\xfe",
    ),
    *(
        b'{"text":"x","a":"\x80"}',
        b'{"text":"x","\xff":1}',
        b'{"text":"x"}\xc3',
        b'{"text":"x\xe4\xbd',
        b"\xf0\x9f\x91",
    ),
    *(
        b'\xef\xbb\xbf{"text":"x"}',
        b'\xef\xbb\xbf\xef\xbb\xbf{"text":"x"}',
        b'{"text":"x"}\xef\xbb\xbf',
        b"\xef\xbb\xbf",
    ),
]
ALL_ODD = [*(line.encode() for line in ODD), *ODD_BYTES]


@pytest.mark.parametrize("line", ALL_ODD, ids=repr)
def test_odd_lines_are_left_to_be_read_one_by_one(line):
    assert scanned(line, names=("text", "id")) == [None]
    assert_same(b"\n".join([FIRST, line, b'{"text":"last"}']))


def test_all_of_them_at_once_in_any_order_with_either_line_end():
    lines = [*ALL_ODD, *(line.encode() for line in PLAIN)]
    for step in (1, 7, 11):
        mixed = [FIRST, *(lines[i * step % len(lines)] for i in range(len(lines)))]
        for end in (b"\n", b"\r\n"):
            assert_same(end.join(mixed))
            assert_same(end.join(mixed) + end, carry=CARRY)
            assert_same(end.join(mixed), strict=True)


def test_one_odd_line_takes_no_other_with_it():
    block = list(
        line_blocks([FIRST + b"\n", b'{"text":"a"}\n{"text":"\xff"}\n{"text":"b"}\n{"text":"\xe4\n{"text":"c"}\n'])
    )[1]
    found = scan(block, ("text", "id"))
    assert found.columns[0].to_pylist() == ["a", "b", "c"]
    assert found.plain.tolist() == [[0, 12], [2, 12], [4, 12]]
    assert [block.data[start:end] for _, start, end in found.odd.tolist()] == [b'{"text":"\xff"}', b'{"text":"\xe4']


@pytest.mark.parametrize(
    "options",
    [
        {"text_field": "id"},
        {"text_field": "\u043f\u043e\u043b\u0435", "id_field": "meta"},
        {"text_field": 'a"b', "id_field": "a\\b"},
        {"text_field": "", "id_field": "\ud800"},
        {"text_field": "meta", "carry": ("meta",)},
        {"carry": CARRY},
    ],
    ids=repr,
)
def test_fields_of_any_name(options):
    names = ["text", "id", "meta", "\u043f\u043e\u043b\u0435", 'a"b', "a\\b", ""]
    objects = [{name: f"{name}{i}" for name in names[i % 3 :]} for i in range(20)]
    dumps = [json.dumps(value, ensure_ascii=i % 2 == 0) for i, value in enumerate(objects)]
    assert_same("\n".join(dumps).encode(), **options)


def test_what_comes_before_the_first_line_is_still_looked_at():
    blank = b"\n" * 100
    assert_same(blank + b"\xff\xfe" + b'{"text":"a"}\n' * 3)
    assert_same(blank + b'{"text":"a"}\n\xff\xfe{"text":"b"}\n')
    assert "UTF-16" in read(blank + b"\xff\xfea\n")[3]


def test_a_wrong_text_field_is_refused_with_the_keys_seen():
    lines = b'{"a":1}\n{"b":"x"}\n' * 3
    assert_same(lines)
    assert "'a', 'b'" in read(lines)[3]


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 1 << 20) | st.integers(0, 3 * MAX_BATCH_BYTES), max_size=40),
    copies=st.sampled_from([1, 1, 7000]),
    num_parts=st.integers(1, 5),
)
@example(sizes=[7000] * 20, copies=7000, num_parts=3)
@example(sizes=[MAX_BATCH_BYTES - 5, 5, 1, 0, MAX_BATCH_BYTES], copies=1, num_parts=1)
def test_documents_are_gathered_until_one_has_no_room(sizes, copies, num_parts):
    num_bytes = np.repeat(np.array(sizes, np.int64) // copies, copies)
    expected, held, total = [], 0, 0
    for size in num_bytes.tolist():
        if held and (held == MAX_BATCH_ROWS or total + size > MAX_BATCH_BYTES):
            expected.append(held)
            held = total = 0
        held, total = held + 1, total + size
    expected += [held] if held else []
    rows = pa.array(np.arange(len(num_bytes)))
    batch = pa.RecordBatch.from_arrays([rows], names=["row"])
    edges = np.linspace(0, len(num_bytes), num_parts + 1).astype(int).tolist()
    parts = [Sized(batch.slice(a, b - a), num_bytes[a:b]) for a, b in pairwise(edges)]
    batches = list(gather(parts))
    assert [batch.num_rows for batch in batches] == expected
    assert [row for batch in batches for row in batch.column("row").to_pylist()] == rows.to_pylist()


def test_a_line_counts_without_its_end():
    (block,) = line_blocks([b'{"text":"a"}\r\n'])
    assert scan(block, ("text", "id")).plain.tolist() == [[0, 12]]


def test_batches_end_where_they_end_line_by_line():
    big = [json.dumps({"text": "\u00e9" * size, "id": i}) for i, size in enumerate([1 << 20, 3 << 20, 5, 4 << 20] * 6)]
    assert_same("\n".join(big).encode())
    tiny = [b'{"text":"a"}', b"{}", b'{"text":"b","id":"\\u0000"}', b""]
    assert_same(b"\n".join(tiny * 70_000))


CHARACTERS = st.characters() | st.sampled_from(' "\\/\n\r\t\0\x1c\x7f\u0085\u3000\u2028\ud83d\udc4d\U0001f44d')
STRINGS = st.text(CHARACTERS, max_size=60)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | STRINGS | st.integers(-(2**70), 2**70)
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(STRINGS, v, max_size=4), max_leaves=8
)
KEYS = st.sampled_from(["text", "text", "id", *CARRY, "", "tex", "text "]) | STRINGS
MEMBERS = st.lists(st.tuples(KEYS, VALUES) | st.tuples(st.just("text"), STRINGS), max_size=6)


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """An object as JSON; keys may come twice."""
    ascii = draw(st.booleans())
    space = draw(st.sampled_from(["", " ", "\t", "\r "]))

    def dump(value: Any) -> str:
        return json.dumps(value, ensure_ascii=ascii, separators=(space + ",", ":" + space))

    members = (f"{dump(key)}{space}:{space}{dump(value)}" for key, value in draw(MEMBERS))
    line = space + "{" + space + f",{space}".join(members) + space + "}" + space
    return line.encode("utf-8", "surrogatepass")


PIECES = st.sampled_from(
    [bytes([byte]) for byte in b'"\\{}[],: \r\t\n\0u0123eE.+-'] + [b"\xe4", b"\x80", b"\xf0", b"\\u"]
)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """An object in which a few bytes are others, too many, or gone."""
    line = draw(objects())
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(line)))
        line = line[:start] + draw(PIECES | st.binary(max_size=2)) + line[start + draw(st.integers(0, 2)) :]
    return line


@settings(max_examples=300, deadline=None)
@given(
    lines=st.lists(objects() | broken() | st.binary(max_size=40), max_size=6),
    end=st.sampled_from([b"\n", b"\r\n"]),
    carry=st.sampled_from([(), CARRY]),
    strict=st.booleans(),
)
def test_any_lines_at_all(lines, end, carry, strict):
    assert_same(end.join([FIRST, *lines]), carry=carry, strict=strict)


def test_small_files_are_read_without_loading_the_compiler(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text":"a"}\n' * 5000)
    script = (
        "import sys; from tokenmill_core.documents import Account; from tokenmill_core.readers import *\n"
        "piece = Piece(url=sys.argv[1], name='a', format=Format.JSONL, bytes=0)\n"
        "print(sum(b.num_rows for b in read_piece(piece, ReadOptions(), Account())), 'numba' in sys.modules)"
    )

    def run() -> str:
        return subprocess.run(
            [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True, env=os.environ
        ).stdout.strip()

    assert run() == "5000 False"
    path.write_bytes(b'{"text":"a"}\n' * 50_000)
    assert run() == "50000 True"
