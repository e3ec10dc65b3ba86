"""Files written whole or not at all, and the names of places."""

import contextlib
import hashlib
import subprocess
import sys

import pytest

from tokenmill_core import storage
from tokenmill_core.errors import InputError, VerificationError
from tokenmill_core.storage import HashingWriter, hash_file, write_atomic


def test_the_hash_taken_while_writing_is_that_of_the_file(tmp_path):
    path = tmp_path / "deep/er/file"
    parts = [b"one", b"", memoryview(b"two" * 100_000), b"\0\xff"]
    with HashingWriter(path) as writer:
        for part in parts:
            assert writer.write(part) == len(part)
        assert writer.tell() == sum(map(len, parts))
        assert not path.exists()
    content = path.read_bytes()
    assert content == b"".join(parts)
    assert (writer.bytes, writer.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert hash_file(str(path)) == (writer.bytes, writer.sha256)


def test_a_failed_writer_leaves_nothing_and_keeps_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with contextlib.suppress(KeyboardInterrupt), HashingWriter(path) as writer:
        writer.write(b"new")
        raise KeyboardInterrupt
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


def test_a_failed_atomic_write_leaves_nothing_and_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def fail(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


FULL_DISK = """
import resource, sys
from pathlib import Path
from tokenmill_core.storage import HashingWriter, write_atomic
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
path = Path(sys.argv[1])
try:
    if sys.argv[2] == "atomic":
        write_atomic(path, b"x" * 200)
    else:
        with HashingWriter(path) as writer:
            writer.write(b"x" * int(sys.argv[2]))
except OSError as error:
    print(error.filename)
"""


@pytest.mark.parametrize("how", ["atomic", "200", "2000000"])
def test_where_no_more_can_be_written_the_error_names_the_file_and_nothing_is_left(tmp_path, how):
    """A limit on sizes stands for a full disk: writing fails at once, or only when what is buffered goes out."""
    command = [sys.executable, "-W", "error", "-c", FULL_DISK, str(tmp_path / "file"), how]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, str(tmp_path / "file"), "")
    assert list(tmp_path.iterdir()) == []


def test_closing_twice_and_hashing_with_progress(tmp_path):
    with HashingWriter(tmp_path / "file") as writer:
        writer.write(b"x" * (storage.CHUNK_BYTES + 1))
        writer.close()
        assert writer.closed
    seen: list[int] = []
    hash_file(str(tmp_path / "file"), seen.append)
    assert seen == [storage.CHUNK_BYTES, 1]


@pytest.mark.parametrize(
    ("url", "base", "relative"),
    [
        ("/a/b/c", "/a/b", "c"),
        ("/a/x", "/a/b", "../x"),
        ("s3://bucket/x", "/a/b", "s3://bucket/x"),
        ("memory://m/x", "memory://m", "memory://m/x"),
    ],
)
def test_places_are_relative_where_both_can_move(url, base, relative):
    assert storage.relative_to(url, base) == relative
    assert storage.from_relative(relative, base) == url


def test_an_absolute_place_stays():
    assert storage.from_relative("/x/y", "/a/b") == "/x/y"
    assert storage.from_relative("../y", "memory://m/a") == "memory://m/y"


@pytest.mark.parametrize("base", ["http://host/data/tokens", "s3://bucket/data/tokens", "memory://m/data/tokens"])
def test_a_place_stays_on_its_host(base):
    top = base.removesuffix("/data/tokens")
    assert storage.from_relative("../../raw", base) == f"{top}/raw"
    assert storage.from_relative("../../../raw", base) == f"{top}/../raw"
    assert storage.from_relative("../raw", top) == f"{top}/../raw"


def test_a_name_that_is_not_utf8_can_be_written_down(tmp_path):
    assert storage.relative_to(str(tmp_path / "a\udcff"), str(tmp_path)) == r"a\xff"


@pytest.mark.parametrize("relative", ["x/../../y", "../y"])
def test_inside_is_inside(tmp_path, relative):
    with pytest.raises(VerificationError, match="leads out of"):
        storage.inside(str(tmp_path), relative)
    assert storage.inside(str(tmp_path), "x/y") == str(tmp_path / "x/y")


def test_an_unknown_protocol_says_what_to_install():
    with pytest.raises(InputError, match=r"'nope://x'.*install the fsspec driver"):
        storage.exists("nope://x")
