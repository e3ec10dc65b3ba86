"""Tasks over raw files of every format: each document in exactly one, whatever runs them, where and in which order."""

import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill_core.documents import Account
from tokenmill_core.inputs import expand_inputs
from tokenmill_core.pieces import group_pieces, plan_pieces
from tokenmill_core.readers import ReadOptions
from tokenmill_core.sources import read_task
from tokenmill_core.stage import Task

OPTIONS = ReadOptions(carry=("url", "n"), text_unit="line")
PAGE = "<html><body><article>" + "<p>A page says something long enough to be text.</p>" * 6 + "</article></body></html>"
READ_TASKS = """
import json, sys
from tokenmill_core.documents import Account
from tokenmill_core.readers import ReadOptions
from tokenmill_core.sources import read_task
from tokenmill_core.stage import Task

for line in sys.stdin:
    task = Task(index=0, payload=json.loads(line))
    options = ReadOptions(carry=("url", "n"), text_unit="line")
    rows = [row for batch in read_task(task, options, Account()) for row in batch.to_pylist()]
    print(json.dumps(rows))
"""


@pytest.fixture
def groups(tmp_path):
    """A folder with a file or two of every format."""
    folder = tmp_path / "every format"
    folder.mkdir()
    rows = [{"text": f"text {i}", "id": i, "url": f"u{i}", "n": i * i} for i in range(300)]
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    table = pa.Table.from_pylist(rows)
    (folder / "a.jsonl").write_bytes(lines)
    for suffix, compress in ((".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)):
        (folder / f"b.jsonl{suffix}").write_bytes(compress(lines))
    (folder / "c.csv").write_text(
        "text,id,url,n\n" + "".join(f"{r['text']},{r['id']},{r['url']},{r['n']}\n" for r in rows)
    )
    pq.write_table(table, folder / "d.parquet", row_group_size=20)
    with pa.OSFile(str(folder / "e.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=20)
    (folder / "f.txt").write_bytes(b"".join(b"text %d\n" % i for i in range(300)))
    body = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + PAGE.encode()
    head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <i>\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    (folder / "g.warc").write_bytes((head + body + b"\r\n\r\n") * 4)
    return expand_inputs([str(folder)])


def plan(groups, target_bytes):
    return [
        Task(index=index, payload={"pieces": [piece.to_json() for piece in run]})
        for index, run in enumerate(group_pieces(plan_pieces(groups, OPTIONS, target_bytes), target_bytes))
    ]


def rows_of(task):
    return [row for batch in read_task(task, OPTIONS, Account()) for row in batch.to_pylist()]


def test_every_document_is_in_one_task_and_the_order_of_the_work_does_not_show(groups):
    (whole,) = plan(groups, 1 << 30)
    expected = rows_of(whole)
    assert len(expected) == 8 * 300 + 4
    numbered = [(row["id"], row["url"], row["n"]) for row in expected if row["id"] not in (None, "<i>")]
    assert set(numbered) == {(f"{i}", f"u{i}", f"{i * i}") for i in range(300)}
    for target in (1, 700, 2000):
        tasks = plan(groups, target)
        assert len(tasks) > 10
        done = {task.index: rows_of(task) for task in reversed(tasks)}
        assert [row for index in sorted(done) for row in done[index]] == expected


def test_what_can_be_cut_is(groups):
    cut = [piece.name for piece in plan_pieces(groups, OPTIONS, 2000) if piece.byte_range or piece.row_groups]
    assert set(cut) == {f"every format/{name}" for name in ("a.jsonl", "d.parquet", "f.txt")}
    assert len(cut) > 6


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_another_process_with_another_hash_seed_reads_the_same(groups, hash_seed):
    tasks = plan(groups, 2000)
    result = subprocess.run(
        [sys.executable, "-c", READ_TASKS],
        input="".join(json.dumps(task.payload) + "\n" for task in tasks),
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    found = [row for line in result.stdout.splitlines() for row in json.loads(line)]
    assert found == [row for task in tasks for row in rows_of(task)]
