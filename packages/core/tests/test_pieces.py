"""Pieces and tasks: cut by the data alone, every row in exactly one."""

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError, VerificationError
from tokenmill_core.inputs import RawFile, RawGroup, expand_inputs
from tokenmill_core.manifest import FileEntry
from tokenmill_core.pieces import Piece, group_pieces, plan_documents, plan_pieces
from tokenmill_core.readers import Format, ReadOptions, read_piece

WHOLE = Piece(url="/d/a.jsonl", name="d/a.jsonl", format=Format.JSONL, bytes=5)
PART = Piece(
    url="s3://b/a.parquet",
    name="b/a.parquet",
    format=Format.PARQUET,
    bytes=9,
    row_groups=(2, 3),
    first_row=7,
    documents=True,
)


@pytest.mark.parametrize("piece", [WHOLE, PART])
def test_a_piece_survives_json(piece):
    assert Piece.from_json(json.loads(json.dumps(piece.to_json()))) == piece


def test_files_become_pieces_in_order_named_by_group():
    files = (
        RawFile("/d/a.jsonl.gz", "a.jsonl.gz", 3),
        RawFile("/d/s/b.PY", "s/b.PY", 4),
        RawFile("/d/c.md", "c.md", 5),
    )
    pieces = plan_pieces(
        [RawGroup("d", "/d", files), RawGroup("e", "/e", (RawFile("/e/x.txt", "x.txt", 1),))], ReadOptions()
    )
    assert [(piece.name, piece.format, piece.bytes) for piece in pieces] == [
        ("d/a.jsonl.gz", Format.JSONL, 3),
        ("d/s/b.PY", Format.SOURCE, 4),
        ("d/c.md", Format.TEXT, 5),
        ("e/x.txt", Format.TEXT, 1),
    ]


def test_a_format_given_wins_and_none_known_is_an_error():
    group = RawGroup("d", "/d", (RawFile("/d/a.log", "a.log", 3),))
    assert plan_pieces([group], ReadOptions(format=Format.TEXT))[0].format is Format.TEXT
    with pytest.raises(InputError, match=r"/d/a\.log.*--format"):
        plan_pieces([group], ReadOptions())


def write_parquet(path, num_rows=1000, group_rows=100):
    # Hashes do not compress, so every row group takes about as many bytes.
    texts = [hashlib.sha256(str(i).encode()).hexdigest() for i in range(num_rows)]
    pq.write_table(pa.table({"text": texts}), path, row_group_size=group_rows, use_dictionary=False)
    return texts


def read_all(pieces):
    batches = [batch for piece in pieces for batch in read_piece(piece, ReadOptions(), Account())]
    return [(row["row"], row["text"]) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("target", [1, 10_000, 25_000, 1 << 20])
def test_a_large_parquet_file_is_cut_between_row_groups(tmp_path, target):
    texts = write_parquet(tmp_path / "a.parquet")
    size = (tmp_path / "a.parquet").stat().st_size
    pieces = plan_pieces(expand_inputs([str(tmp_path)]), ReadOptions(), target)
    if target > size:
        assert [piece.row_groups for piece in pieces] == [None]
    else:
        assert [group for piece in pieces for group in piece.row_groups] == list(range(10))
        assert all(piece.bytes <= target or len(piece.row_groups) == 1 for piece in pieces)
        assert len(pieces) == {1: 10, 10_000: 10, 25_000: 4}[target]
    assert read_all(pieces) == list(enumerate(texts, 1))


def test_a_large_file_that_is_no_parquet_is_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"nothing of the kind" * 10)
    with pytest.raises(InputError, match=r"cannot read .*a\.parquet as Parquet"):
        plan_pieces(expand_inputs([str(tmp_path)]), ReadOptions(), 10)


def test_neighbours_share_a_task_until_the_target():
    pieces = [
        Piece(url=f"/{i}", name=f"{i}", format=Format.TEXT, bytes=size) for i, size in enumerate([4, 4, 4, 20, 0, 9, 2])
    ]
    tasks = group_pieces(pieces, 10)
    assert [[piece.bytes for piece in task] for task in tasks] == [[4, 4], [4], [20], [0, 9], [2]]
    assert [piece for task in tasks for piece in task] == pieces
    assert group_pieces([], 10) == []


def test_documents_of_a_manifest_are_planned_alike(tmp_path):
    write_parquet(tmp_path / "part-0.parquet")
    size = (tmp_path / "part-0.parquet").stat().st_size
    entries = [
        FileEntry(path="part-0.parquet", bytes=size, sha256="0" * 64, documents=1000),
        FileEntry(path="dropped.parquet", bytes=size, sha256="0" * 64),
        FileEntry(path="rejects.jsonl", bytes=9, sha256="0" * 64),
    ]
    (whole,) = plan_documents(str(tmp_path), entries)
    assert (whole.url, whole.documents, whole.row_groups) == (str(tmp_path / "part-0.parquet"), True, None)
    cut = plan_documents(str(tmp_path), entries, 25_000)
    assert [piece.first_row for piece in cut] == [1, 301, 601, 901]
    assert all(piece.documents for piece in cut)


def test_a_link_out_of_the_manifests_folder_is_refused(tmp_path):
    (tmp_path / "set").mkdir()
    write_parquet(tmp_path / "outside.parquet")
    (tmp_path / "set" / "a.parquet").symlink_to(tmp_path / "outside.parquet")
    with pytest.raises(VerificationError, match="leads out of"):
        plan_documents(str(tmp_path / "set"), [FileEntry(path="a.parquet", bytes=1, sha256="0" * 64, documents=1)])
