"""Arrow files and streams at reader level."""

from random import Random

import pyarrow as pa
import pytest
from pyarrow import feather
from reading import read

from tokenmill_core.documents import MAX_BATCH_BYTES
from tokenmill_core.errors import InputError
from tokenmill_core.readers import Format

TEXTS = ["one", None, "", " \n\u3000", "nul\0nul", "caf\u00e9", "two"]
OPENERS = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}


@pytest.fixture(params=OPENERS)
def write(request, tmp_path):
    def write_file(columns, rows_each=1000, **options):
        path = tmp_path / "a.arrow"
        table = pa.table(columns)
        with pa.OSFile(str(path), "wb") as file, OPENERS[request.param](file, table.schema, **options) as writer:
            writer.write_table(table, max_chunksize=rows_each)
        return path

    return write_file


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str
)
@pytest.mark.parametrize("rows_each", [1, 2, 100])
def test_every_kind_of_string_column_gives_the_same(write, kind, rows_each):
    options = pa.ipc.IpcWriteOptions(unify_dictionaries=True)
    path = write({"n": range(7), "text": pa.array(TEXTS).cast(kind), "id": range(7)}, rows_each, options=options)
    outcome = read(path, Format.ARROW, carry=("n",))
    assert [(row["text"], row["row"], row["id"], row["n"]) for row in outcome.rows] == [
        ("one", 1, "0", "0"),
        ("nul\ufffdnul", 5, "4", "4"),
        ("caf\u00e9", 6, "5", "5"),
        ("two", 7, "6", "6"),
    ]
    assert outcome.rejected == [(2, "null_text"), (3, "empty_text"), (4, "blank_text")]
    assert outcome.account.notes == {"repaired_characters": 1}


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_buffers(write, compression):
    options = pa.ipc.IpcWriteOptions(compression=compression)
    assert len(read(write({"text": ["a"] * 5000}, options=options), Format.ARROW).rows) == 5000


def test_feather(tmp_path):
    path = tmp_path / "a.feather"
    feather.write_feather(pa.table({"text": ["a", "b"]}), str(path))
    assert read(path, Format.ARROW).texts == ["a", "b"]
    path.write_bytes(b"FEA1" + bytes(100))
    with pytest.raises(InputError, match=r"a\.feather is Feather version 1.*write it again"):
        read(path, Format.ARROW)


def test_large_record_batches_are_cut(write):
    sizes = [10, 9 << 20, 9 << 20, 20 << 20, 5]
    path = write({"text": ["x" * size for size in sizes]}, 1000)
    outcome = read(path, Format.ARROW)
    assert [len(text) for text in outcome.texts] == sizes
    assert sum(sizes[:3]) > MAX_BATCH_BYTES
    assert len(outcome.sizes) > 2
    assert outcome.places == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("share", [0.001, 0.1, 0.3, 0.6, 0.9, 0.9999])
def test_a_file_cut_short_is_named(write, share):
    path = write({"text": [f"text {i}" for i in range(10_000)]}, 100)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(InputError, match=r"cannot read .*a\.arrow as Arrow"):
        read(path, Format.ARROW)


def test_a_stream_cut_between_two_messages_is_named(tmp_path):
    path = tmp_path / "a.arrow"
    table = pa.table({"text": ["a", "b"]})
    with pa.OSFile(str(path), "wb") as file:
        writer = pa.ipc.new_stream(file, table.schema)
        writer.write_table(table)
        end = file.tell()
        writer.close()
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(InputError, match=r"a\.arrow as Arrow: the stream is cut short"):
        read(path, Format.ARROW)


def test_files_without_rows_and_without_bytes_are_empty_files(write, tmp_path):
    assert read(write({"text": pa.array([], pa.string())}), Format.ARROW).account.notes == {"empty_files": 1}
    (tmp_path / "b.arrow").write_bytes(b"")
    assert read(tmp_path / "b.arrow", Format.ARROW).account.notes == {"empty_files": 1}


def test_columns_that_do_not_fit_fail_by_name(write):
    with pytest.raises(InputError, match=r"has no column 'text'; its columns are 'content'.*--text-field"):
        read(write({"content": ["a"]}), Format.ARROW)
    with pytest.raises(InputError, match="column 'text' holds int64, not strings"):
        read(write({"text": [1]}), Format.ARROW)
    (path := write({"text": ["a"]})).write_bytes(b"no arrow at all, but long enough")
    with pytest.raises(InputError, match="as Arrow"):
        read(path, Format.ARROW)


def test_an_invalid_byte_costs_its_row_only(write):
    values = pa.array([b"one", b"caf\xe9", b"two"], pa.binary())
    outcome = read(write({"text": pa.StringArray.from_buffers(3, *values.buffers()[1:])}), Format.ARROW)
    assert outcome.texts == ["one", "two"]
    assert outcome.rejected == [(2, "invalid_utf8")]


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_damage_anywhere_is_an_error_or_shows_in_values_and_never_a_crash(write, kind):
    path = write(
        {"text": pa.array([f"text {i}" for i in range(60)]).cast(kind), "n": [["a"] * (i % 3) for i in range(60)]}
    )
    whole, random, refused = path.read_bytes(), Random(0), 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[random.randrange(len(whole))] ^= random.randrange(1, 256)
        path.write_bytes(damaged)
        try:
            read(path, Format.ARROW, carry=("n",))
        except InputError:
            refused += 1
    assert 50 < refused < 300
