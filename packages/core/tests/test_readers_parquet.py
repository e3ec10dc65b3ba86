"""Parquet at reader level."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill_core.documents import DOCUMENT_SCHEMA, MAX_BATCH_BYTES, Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers import Format, Piece, ReadOptions, read_piece

INVALID = b"caf\xe9"


def read(path, *, row_groups=None, first_row=1, documents=False, **options):
    rejects, rows = [], []
    account = Account(on_reject=rejects.append)
    piece = Piece(
        url=str(path),
        name="set/a",
        format=Format.PARQUET,
        bytes=0,
        row_groups=row_groups,
        first_row=first_row,
        documents=documents,
    )
    for batch in read_piece(piece, ReadOptions(**options), account):
        batch.validate(full=True)
        assert batch.schema.equals(DOCUMENT_SCHEMA)
        rows += batch.to_pylist()
    assert account.documents == len(rows) + len(rejects)
    assert account.bytes == sum(len(row["text"].encode()) for row in rows) + sum(reject.bytes for reject in rejects)
    return rows, account, [(reject.row, reject.reason, reject.bytes) for reject in rejects]


@pytest.fixture
def write(tmp_path):
    def write_file(columns, **options):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table(columns), path, **options)
        return path

    return write_file


TEXTS = ["one", None, "", " \n\u3000", "nul\0nul", "caf\u00e9", "two"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_string()),
    ],
    ids=str,
)
@pytest.mark.parametrize("group_rows", [1, 2, 100])
def test_every_kind_of_string_column_gives_the_same(write, kind, group_rows):
    rows, account, rejected = read(write({"text": pa.array(TEXTS).cast(kind)}, row_group_size=group_rows))
    assert [(row["text"], row["row"], row["id"], row["file"]) for row in rows] == [
        ("one", 1, None, "set/a"),
        ("nul\ufffdnul", 5, None, "set/a"),
        ("caf\u00e9", 6, None, "set/a"),
        ("two", 7, None, "set/a"),
    ]
    assert rejected == [(2, "null_text", 0), (3, "empty_text", 0), (4, "blank_text", 5)]
    assert account.notes == {"repaired_characters": 1}


def test_a_column_of_nulls_alone_is_all_null_text(write):
    assert read(write({"text": pa.nulls(3)}))[2] == [(row, "null_text", 0) for row in (1, 2, 3)]


def test_an_invalid_byte_costs_its_row_only(write):
    values = pa.array([b"one", INVALID, None, b"two", b""], pa.binary())
    text = pa.StringArray.from_buffers(5, *values.buffers()[1:], values.buffers()[0])
    rows, _, rejected = read(write({"text": text}))
    assert [row["text"] for row in rows] == ["one", "two"]
    assert rejected == [(2, "invalid_utf8", 4), (3, "null_text", 0), (5, "empty_text", 0)]


def test_an_invalid_byte_in_an_id_is_replaced(write):
    values = pa.array([INVALID, b"7"], pa.binary())
    ids = pa.StringArray.from_buffers(2, *values.buffers()[1:])
    assert [row["id"] for row in read(write({"text": ["a", "b"], "id": ids}))[0]] == ["caf\ufffd", "7"]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (pa.array([1, None, -3], pa.int32()), ["1", None, "-3"]),
        (pa.array([1, None, 2**64 - 1], pa.uint64()), ["1", None, str(2**64 - 1)]),
        (pa.array(["7", None, "x"], pa.large_string()), ["7", None, "x"]),
        (pa.array(["7", None, "x"]).dictionary_encode(), ["7", None, "x"]),
        (pa.array([5, None, 5], pa.int64()).dictionary_encode(), ["5", None, "5"]),
        (pa.array([1.5, None, 2.0]), [None] * 3),
        (pa.array([True, None, False]), [None] * 3),
        (pa.array([{"a": 1}, None, {"a": 2}]), [None] * 3),
        (pa.nulls(3), [None] * 3),
    ],
)
def test_ids_are_text_or_integers_or_none(write, ids, expected):
    rows, _, _ = read(write({"text": ["a", "b", "c"], "id": ids, "other": [1, 2, 3]}))
    assert [row["id"] for row in rows] == expected


def test_fields_can_be_named_and_be_the_same(write):
    path = write({"body": ["a"], "url": ["u"], "text": [1]})
    assert read(path, text_field="body", id_field="url")[0][0]["id"] == "u"
    assert read(path, text_field="body", id_field="body")[0][0]["id"] == "a"


def test_a_missing_column_fails_and_lists_those_there_are(write):
    with pytest.raises(
        InputError, match=r"a\.parquet has no column 'text'; its columns are 'content', 'url'.*--text-f"
    ):
        read(write({"content": ["a"], "url": ["b"]}))


@pytest.mark.parametrize(
    "values", [[1, 2], [["a"]], [{"a": "b"}], pa.array([b"a"])], ids=["int", "list", "map", "bytes"]
)
def test_a_column_that_is_no_text_fails(write, values):
    with pytest.raises(InputError, match=r"column 'text' holds .*, not strings"):
        read(write({"text": values}))


def test_strict_stops_at_the_first_bad_row(write):
    with pytest.raises(InputError, match=r"a\.parquet:2: null_text"):
        read(write({"text": TEXTS}), strict=True)


def test_row_groups_of_a_file_keep_their_row_numbers(write):
    path = write({"text": [f"t{i}" for i in range(10)]}, row_group_size=3)
    rows, _, _ = read(path, row_groups=(1, 2), first_row=4)
    assert [(row["row"], row["text"]) for row in rows] == [(i + 1, f"t{i}") for i in range(3, 9)]


def test_documents_of_a_manifest_keep_their_file_and_row(write):
    columns = {"id": ["x", None], "text": ["a", "b"], "file": ["raw/1", "raw/2"], "row": [70, 3], "score": [0.5, 0.7]}
    rows, account, _ = read(write(columns), documents=True, text_field="body")
    assert rows == [
        {"id": "x", "text": "a", "file": "raw/1", "row": 70},
        {"id": None, "text": "b", "file": "raw/2", "row": 3},
    ]
    assert (account.documents, account.bytes) == (2, 2)


def test_documents_of_a_manifest_must_have_all_columns(write):
    with pytest.raises(InputError, match="has no column 'file'"):
        read(write({"id": ["x"], "text": ["a"], "row": [1]}), documents=True)


def test_batches_stay_within_the_limit_even_when_sizes_are_uneven(tmp_path):
    sizes = [10] * 5000 + [9 << 20, 9 << 20, 40 << 20, 5] + [10] * 100
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x" * size for size in sizes]}), path, compression="zstd")
    piece = Piece(url=str(path), name="f", format=Format.PARQUET, bytes=0)
    lengths, rows = [], []
    for batch in read_piece(piece, ReadOptions(), Account()):
        of_batch = [len(text.as_py()) for text in batch.column("text")]
        assert sum(of_batch) <= MAX_BATCH_BYTES or len(of_batch) == 1
        lengths += of_batch
        rows += batch.column("row").to_pylist()
    assert lengths == sizes
    assert rows == list(range(1, len(sizes) + 1))


def test_files_without_rows_and_without_bytes_are_empty_files(write, tmp_path):
    rows, account, rejected = read(write({"text": pa.array([], pa.string())}))
    assert (rows, account.notes, rejected) == ([], {"empty_files": 1}, [])
    empty = tmp_path / "empty.parquet"
    empty.write_bytes(b"")
    assert read(empty)[1].notes == {"empty_files": 1}


@pytest.mark.parametrize("share", [0.1, 0.6, 0.999])
def test_a_file_cut_short_is_named(write, share):
    path = write({"text": [f"text {i}" for i in range(1000)]})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(InputError, match=r"cannot read .*a\.parquet as Parquet"):
        read(path)


def test_a_damaged_page_is_named(write):
    path = write({"text": [f"text {i}" for i in range(1000)]}, compression="zstd", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[200:600] = bytes(400)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot read .*a\.parquet as Parquet"):
        read(path)
