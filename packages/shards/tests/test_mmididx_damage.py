"""Damaged shards and killed writers: opening catches each, and nothing looks complete that is not."""

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tokenmill_core.errors import VerificationError
from tokenmill_shards import Shard, ShardWriter


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    with ShardWriter(tmp_path / "a", "uint16", 1000) as writer:
        writer.append(np.arange(10), np.array([4, 0, 6]))
    return tmp_path / "a"


def patch(path: Path, offset: int, content: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[offset : offset + len(content)] = content
    path.write_bytes(data)


def test_every_other_type_code_is_detected(prefix: Path) -> None:
    for code in set(range(256)) - {8}:
        patch(prefix.with_suffix(".idx"), 17, bytes([code]))
        with pytest.raises(VerificationError, match=r"a\.idx"):
            Shard(prefix)
    patch(prefix.with_suffix(".idx"), 17, b"\x08")
    assert Shard(prefix).document(2).tolist() == [4, 5, 6, 7, 8, 9]


def test_every_flipped_byte_of_an_index_is_detected(prefix: Path) -> None:
    """Lengths, pointers and indices say the same thing twice, so no byte can change alone."""
    path = prefix.with_suffix(".idx")
    whole = path.read_bytes()
    for offset in range(len(whole)):
        patch(path, offset, bytes([whole[offset] ^ 0xFF]))
        # One exception: the index of a document may move between sequences, and still rise from first to last.
        if not 34 + 3 * 12 + 8 <= offset < len(whole) - 8:
            with pytest.raises(VerificationError, match=r"a\.(idx|bin)"):
                Shard(prefix)
        path.write_bytes(whole)


@pytest.mark.parametrize(("suffix", "cut"), [(".bin", 2), (".bin", 1), (".bin", 20), (".idx", 1), (".idx", 70)])
def test_missing_bytes_are_detected_and_the_file_named(prefix: Path, suffix: str, cut: int) -> None:
    path = prefix.with_suffix(suffix)
    os.truncate(path, path.stat().st_size - cut)
    with pytest.raises(VerificationError, match=rf"a\{suffix}.* has .* needs "):
        Shard(prefix)


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
def test_bytes_too_many_are_detected_and_the_file_named(prefix: Path, suffix: str) -> None:
    path = prefix.with_suffix(suffix)
    path.write_bytes(path.read_bytes() + b"\0\0")
    with pytest.raises(VerificationError, match=rf"a\{suffix}.* has .* needs "):
        Shard(prefix)


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
def test_a_missing_file_is_named(prefix: Path, suffix: str) -> None:
    prefix.with_suffix(suffix).unlink()
    with pytest.raises(VerificationError, match=rf"a\{suffix} is missing"):
        Shard(prefix)


def test_an_empty_or_foreign_index_is_detected(prefix: Path) -> None:
    for content in (b"", b"MMIDIDX", b"x" * 200, struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, 2**63, 2**63)):
        prefix.with_suffix(".idx").write_bytes(content)
        with pytest.raises(VerificationError, match="damaged or not an MMIDIDX index"):
            Shard(prefix)


def test_the_index_of_another_shard_is_detected(prefix: Path) -> None:
    with ShardWriter(prefix.with_name("b"), "uint16", 1000) as writer:
        writer.append(np.arange(11), np.array([4, 1, 6]))
    prefix.with_name("b.idx").replace(prefix.with_suffix(".idx"))
    with pytest.raises(VerificationError, match=r"a\.bin has 20 bytes, .* needs 22"):
        Shard(prefix)


WRITE_FOREVER = """
import sys
from pathlib import Path
import numpy as np
from tokenmill_shards import ShardWriter
while True:
    with ShardWriter(Path(sys.argv[1]), "uint16", 60_000) as writer:
        for _ in range(20):
            writer.append(np.arange(50_000), np.full(500, 100))
    print("shard", flush=True)
"""


@pytest.mark.parametrize("milliseconds", [0, 3, 9, 20])
def test_a_killed_writer_leaves_nothing_that_looks_complete(tmp_path: Path, milliseconds: int) -> None:
    """Killed while it writes over an older shard again and again: what can be opened is whole."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_FOREVER, str(tmp_path / "a")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "shard\n"
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    if (tmp_path / "a.idx").exists():
        shard = Shard(tmp_path / "a")
        assert shard.num_documents == 10_000
        assert (shard.tokens.reshape(20, -1) == np.arange(50_000)).all()
    else:
        with pytest.raises(VerificationError, match="missing"):
            Shard(tmp_path / "a")


@pytest.mark.parametrize("moment", ["bin", "idx"])
def test_dying_between_the_two_names_leaves_no_index(tmp_path: Path, moment: str) -> None:
    """The process ends the instant one of the files is to take its name, with an older shard of equal size there."""
    prefix = tmp_path / "a"
    with ShardWriter(prefix, "uint16", 1000) as writer:
        writer.append(np.arange(10), np.array([4, 6]))
    program = f"""
import os, sys
from pathlib import Path
import numpy as np
from tokenmill_shards import ShardWriter
rename = Path.replace
Path.replace = lambda old, new: os._exit(9) if str(new).endswith("{moment}") else rename(old, new)
with ShardWriter(Path(sys.argv[1]), "uint16", 1000) as writer:
    writer.append(np.arange(10) + 500, np.array([5, 5]))
"""
    assert subprocess.run([sys.executable, "-c", program, str(prefix)], check=False).returncode == 9
    with pytest.raises(VerificationError, match=r"a\.idx is missing"):
        Shard(prefix)
