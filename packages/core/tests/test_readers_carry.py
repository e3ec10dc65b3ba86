"""Fields that documents carry along, in every format: text whatever they were."""

import datetime
import decimal
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import read

from tokenmill_core.config import validate_config
from tokenmill_core.documents import DOCUMENT_SCHEMA, document_schema
from tokenmill_core.errors import ConfigError
from tokenmill_core.readers import Format, Piece, ReadOptions
from tokenmill_core.readers.microseconds import in_microseconds

MIXED = [None, "x", "", 7, -0.5, True, {"b": [1, None], "a": "\u00fc"}, [1, "2"], 2**70, 0.1]
AS_TEXT = [None, "x", "", "7", "-0.5", "true", '{"a":"\u00fc","b":[1,null]}', '[1,"2"]', str(2**70), "0.1"]


def test_the_schema_is_that_of_documents_and_the_names_in_their_order():
    schema = document_schema(["b", "a"])
    assert schema.names == ["id", "text", "file", "row", "b", "a"]
    assert pa.schema(list(schema)[:4]).equals(DOCUMENT_SCHEMA) == document_schema().equals(DOCUMENT_SCHEMA) is True
    assert {field.type for field in list(schema)[4:]} == {pa.string()}


@pytest.mark.parametrize("carry", [["text"], ["url", "row"], ["a", "b", "a"], [""]])
def test_names_that_collide_are_refused(carry):
    with pytest.raises(ConfigError, match=r"settings: carry: .*cannot be carried"):
        validate_config(ReadOptions, {"carry": carry}, "settings")


def test_json_values_of_any_type_whatever_the_order_and_the_file(tmp_path):
    for name, values in (("a", MIXED), ("b", MIXED[::-1])):
        lines = [json.dumps({"text": "t", "meta": value, "more": 1}) for value in values] + ['{"text":"t"}']
        (tmp_path / name).write_text("\n".join(lines))
    forward, backward = (read(tmp_path / name, Format.JSONL, carry=("meta", "gone")) for name in "ab")
    assert forward.column("meta") == [*AS_TEXT, None]
    assert backward.column("meta") == [*AS_TEXT[::-1], None]
    assert forward.column("gone") == [None] * 11


def test_json_that_only_others_would_write(tmp_path):
    (tmp_path / "a").write_bytes(rb"""{"text":"t","m":"half \ud83d"}
{"text":"t","m":{"b":NaN,"a":"\ud83d"}}
{"text":"t","m":NaN}
{"text":"t","m":"nul\u0000"}
{"text":"t","m":[123456789012345678901234567890,"\ud83d"]}
""")
    assert read(tmp_path / "a", Format.JSONL, carry=("m",)).column("m") == [
        "half \ufffd",
        '{"a":"\ufffd","b":NaN}',
        None,
        "nul\ufffd",
        '[123456789012345678901234567890,"\ufffd"]',
    ]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON.filter(lambda value: value is not None and not isinstance(value, str)))
def test_what_is_carried_as_json_parses_to_the_same(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("carry") / "a"
    path.write_text(json.dumps({"text": "t", "m": value}))
    (text,) = read(path, Format.JSONL, carry=("m",)).column("m")
    repaired = (
        json.loads(json.dumps(value).replace("\\u0000", "\\ufffd")) if "\\u0000" not in json.dumps(value) else None
    )
    if repaired is not None:
        assert json.loads(text) == value
    assert text.strip() == text


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["x", None, ""]), ["x", None, ""]),
        (pa.array(["x", None, "x"]).dictionary_encode(), ["x", None, "x"]),
        (pa.array(["x", None, "nul\0"], pa.string_view()), ["x", None, "nul\ufffd"]),
        (pa.array([1, None, -3], pa.int8()), ["1", None, "-3"]),
        (pa.array([1, None, 2**64 - 1], pa.uint64()), ["1", None, str(2**64 - 1)]),
        (pa.array([1.0, None, 0.1]), ["1.0", None, "0.1"]),
        (pa.array([float("nan"), None, 2.5], pa.float32()), [None, None, "2.5"]),
        (pa.array([True, None, False]), ["true", None, "false"]),
        (pa.array([{"b": 1, "a": "x"}, None, {"b": 2, "a": None}]), ['{"a":"x","b":1}', None, '{"a":null,"b":2}']),
        (pa.array([["a"], None, []]), ['["a"]', None, "[]"]),
        (pa.array([datetime.date(2020, 1, 2), None, None]), ["2020-01-02", None, None]),
        (
            pa.array([datetime.datetime(2020, 1, 2, 3), None, None], pa.timestamp("ms")),
            ["2020-01-02 03:00:00.000", None, None],
        ),
        (pa.array([decimal.Decimal("1.50"), None, None]), ["1.50", None, None]),
        (pa.array([b"ab", None, b"\xff"]), ["ab", None, "\ufffd"]),
        (pa.array([datetime.timedelta(seconds=1), None, None]), ["0:00:01", None, None]),
        (pa.nulls(3), [None, None, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
@pytest.mark.parametrize("documents", [False, True])
def test_columns_of_any_type(tmp_path, column, expected, documents):
    own = {"id": ["i", None, "k"], "text": ["a", "b", "c"], "file": ["f"] * 3, "row": [5, 6, 7]}
    pq.write_table(pa.table(own | {"m": column}), tmp_path / "a")
    piece = Piece(url=str(tmp_path / "a"), name="n", format=Format.PARQUET, bytes=0, documents=documents)
    outcome = read(tmp_path / "a", Format.PARQUET, piece=piece, carry=("gone", "m"))
    assert outcome.column("m") == expected
    assert outcome.column("gone") == [None] * 3
    assert outcome.places == ([5, 6, 7] if documents else [1, 2, 3])


def test_text_that_is_no_utf8_is_replaced_and_within_a_nested_value_costs_that_value(tmp_path):
    values = pa.array([b"ok", b"caf\xe9"], pa.binary())
    text = pa.StringArray.from_buffers(2, *values.buffers()[1:])
    nested = pa.ListArray.from_arrays([0, 1, 2], text)
    pq.write_table(pa.table({"text": ["a", "b"], "m": text, "n": nested}), tmp_path / "a")
    outcome = read(tmp_path / "a", Format.PARQUET, carry=("m", "n"))
    assert outcome.column("m") == ["ok", "caf\ufffd"]
    assert outcome.column("n") == ['["ok"]', None]
    assert outcome.account.notes == {"unreadable_carried_values": 1}


def test_json_is_carried_to_500_levels_and_deeper_costs_the_value(tmp_path):
    values = ["[" * depth + "1" + "]" * depth for depth in (254, 500, 501, 980)]
    values += ['{"a":' * depth + "[]" + "}" * depth for depth in (499, 500)]
    (tmp_path / "a").write_text("".join(f'{{"text":"t","m":{value}}}\n' for value in values))
    outcome = read(tmp_path / "a", Format.JSONL, carry=("m",))
    assert outcome.column("m") == [*values[:2], None, None, values[4], None]
    assert outcome.account.notes == {"unreadable_carried_values": 3}


NS = pa.timestamp("ns")


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([{"t": 1}, {"t": 1000}], pa.struct([("t", NS)]), '{"t":"1970-01-01T00:00:00.000001"}'),
        ([1, 5 * 10**9], pa.duration("ns"), "0:00:05"),
        ([[1], [1000]], pa.list_(pa.time64("ns")), '["00:00:00.000001"]'),
        ([[1], [1000]], pa.large_list(pa.timestamp("ns", "UTC")), '["1970-01-01T00:00:00.000001+00:00"]'),
        ([[1], [1000]], pa.list_(NS, 1), '["1970-01-01T00:00:00.000001"]'),
        ([[("k", 1)], [("k", 0)]], pa.map_(pa.string(), NS), '[["k","1970-01-01T00:00:00"]]'),
        ([[2**31 - 1], [1]], pa.list_(pa.date32()), '["1970-01-02"]'),
        ([[2**62], [1]], pa.list_(pa.timestamp("s")), '["1970-01-01T00:00:01"]'),
        ([[2**62], [1]], pa.list_(pa.duration("s")), '["0:00:01"]'),
        ([[1], []], pa.list_(pa.timestamp("us", "Mars/Olympus")), "[]"),
    ],
    ids=str,
)
@pytest.mark.parametrize("documents", [False, True])
def test_times_that_python_cannot_hold_cost_their_value(tmp_path, values, kind, expected, documents):
    own = {"id": ["i"] * 3, "text": ["a", "b", "c"], "file": ["f"] * 3, "row": [5, 6, 7]}
    table = pa.table(own | {"m": pa.array([*values, None], kind)})
    with pa.ipc.new_file(tmp_path / "a", table.schema) as file:
        file.write_table(table)
    piece = Piece(url=str(tmp_path / "a"), name="n", format=Format.ARROW, bytes=0, documents=documents)
    outcome = read(tmp_path / "a", Format.ARROW, piece=piece, carry=("m",))
    assert outcome.column("m") == [None, expected, None]
    assert outcome.account.notes == {"unreadable_carried_values": 1}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (NS, pa.timestamp("us")),
        (pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")),
        (pa.dictionary(pa.int8(), NS), pa.timestamp("us")),
        (pa.list_(pa.list_(pa.duration("ns"))), pa.large_list(pa.large_list(pa.duration("us")))),
        (
            pa.struct([("a", pa.time64("ns")), ("b", pa.int8())]),
            pa.struct([("a", pa.time64("us")), ("b", pa.int8())]),
        ),
        (pa.map_(NS, pa.list_(NS, 2)), pa.map_(pa.timestamp("us"), pa.large_list(pa.timestamp("us")))),
        (pa.list_(pa.dictionary(pa.int8(), pa.string()), 2), pa.list_(pa.dictionary(pa.int8(), pa.string()), 2)),
    ],
    ids=str,
)
def test_no_nanoseconds_are_left_of_which_arrow_would_make_objects_of_pandas(kind, expected):
    assert in_microseconds(kind) == expected


def test_rows_that_are_rejected_take_what_they_carry_with_them(tmp_path):
    pq.write_table(pa.table({"text": ["a", None, "c"], "m": [1, 2, 3]}), tmp_path / "a")
    assert read(tmp_path / "a", Format.PARQUET, carry=("m",)).column("m") == ["1", "3"]
    (tmp_path / "b").write_text('{"text":"a","m":1}\n{"text":null,"m":2}\n{"text":"c","m":3}\n')
    assert read(tmp_path / "b", Format.JSONL, carry=("m",)).column("m") == ["1", "3"]
