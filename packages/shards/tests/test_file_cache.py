"""The cache of remote files: right whatever the server does, within its bound, shared by threads and processes."""

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "helpers"))
import servers
from servers import WebServer

from tokenmill_core.errors import ConfigError, InputError, VerificationError
from tokenmill_core.manifest import FileEntry
from tokenmill_core.remote import RemoteError
from tokenmill_shards.reading import cache as caching
from tokenmill_shards.reading.cache import FileCache

KB = 1000
QUICK = (0.0, 0.01, 0.01)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    (tmp_path / "served").mkdir()
    with WebServer(tmp_path / "served") as server:
        yield server


@pytest.fixture
def make(server: WebServer) -> Callable[..., tuple[str, FileEntry]]:
    """make(name, bytes): a file on the server, as its URL and its entry in a manifest."""

    def write(name: str, num_bytes: int = 100 * KB) -> tuple[str, FileEntry]:
        content = np.random.default_rng(ord(name[0])).bytes(num_bytes)
        (server.folder / name).write_bytes(content)
        entry = FileEntry(path=name, bytes=num_bytes, sha256=hashlib.sha256(content).hexdigest())
        return f"{server.url}/{name}", entry

    return write


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileCache:
    monkeypatch.setattr(caching, "GRACE_SECONDS", 0.0)
    return FileCache(tmp_path / "cache", 1000 * KB, waits=QUICK)


def contents(cache: FileCache) -> set[str]:
    return {path.name for path in cache.folder.iterdir()} - {"room.lock"}


def is_right(path: Path, entry: FileEntry) -> bool:
    return hashlib.sha256(path.read_bytes()).hexdigest() == entry.sha256


def test_a_file_is_fetched_once_even_by_two_names_and_after_a_restart(server, make, cache):
    url, entry = make("a.bin", 3_000_001)
    cache = FileCache(cache.folder, 4_000_000)
    path = cache.path(url, entry)
    assert is_right(path, entry)
    again, same = make("another.bin", 3_000_001)
    assert FileCache(cache.folder, 4_000_000).path(again, same) == path
    assert server.downloads == ["/a.bin"]
    assert contents(cache) == {entry.sha256}


def test_an_empty_file_is_a_file(make, cache):
    assert cache.path(*make("a.bin", 0)).read_bytes() == b""


FAULTS = [servers.hang_up, servers.send_half, servers.send_twice, servers.flip_a_byte, servers.fail, servers.go_silent]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_bad_answer_is_asked_for_again(server, make, cache, fault, monkeypatch):
    monkeypatch.setattr("tokenmill_core.remote.SILENCE_SECONDS", 0.3)
    url, entry = make("a.bin", 500 * KB)
    server.spoil.append(fault)
    assert is_right(cache.path(url, entry), entry)
    assert len(server.downloads) == 2
    assert contents(cache) == {entry.sha256}


@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        (servers.flip_a_byte, VerificationError, r"a\.bin: the server sends 100,000 bytes with sha256 .*needs 100,000"),
        (servers.send_half, VerificationError, r"a\.bin: the server sends 50,000 bytes with .*needs 100,000.*restore"),
        (servers.send_twice, VerificationError, r"a\.bin: the server sends more than 100,000 bytes.*needs 100,000"),
        (servers.hang_up, RemoteError, r"http://.*/a\.bin: the server does not answer.*check that it runs"),
        (servers.fail, RemoteError, r"http://.*/a\.bin: the server does not answer.*503"),
    ],
)
def test_a_bad_answer_that_stays_is_refused_and_nothing_is_left(server, make, cache, fault, error, says):
    url, entry = make("a.bin")
    server.spoil.extend([fault] * 9)
    with pytest.raises(error, match=says):
        cache.path(url, entry)
    assert len(server.downloads) == len(QUICK) + 1
    assert contents(cache) == set()


def test_a_missing_file_is_not_asked_for_again(server, make, cache):
    url, entry = make("a.bin")
    os.remove(server.folder / "a.bin")
    with pytest.raises(InputError, match=r"a\.bin: there is no such file on the server; check the address"):
        cache.path(url, entry)
    assert len(server.downloads) <= 1
    assert contents(cache) == set()


def test_a_server_that_is_down_for_a_while_stops_nothing(server, make, cache):
    url, entry = make("a.bin")
    server.down()
    with pytest.raises(RemoteError, match=r"a\.bin: the server does not answer.*Cannot connect"):
        cache.path(url, entry)
    patient = FileCache(cache.folder, cache.max_bytes, waits=[0.05] * 100)
    with ThreadPoolExecutor(1) as pool:
        path = pool.submit(patient.path, url, entry)
        time.sleep(0.2)
        server.up()
        assert is_right(path.result(), entry)


def test_the_least_recently_used_make_room_also_across_restarts(make, cache):
    a, b, c = (make(name, 400 * KB) for name in ("a.bin", "b.bin", "c.bin"))
    for file in (a, b, a):
        cache.path(*file)
    FileCache(cache.folder, 1000 * KB).path(*c)
    assert contents(cache) == {a[1].sha256, c[1].sha256}


def test_what_is_not_the_caches_own_stays(make, cache):
    cache.folder.mkdir()
    (cache.folder / "thesis.tex").write_bytes(b"x" * 2000 * KB)
    for name in ("a.bin", "b.bin", "c.bin"):
        cache.path(*make(name, 400 * KB))
    assert (cache.folder / "thesis.tex").exists()
    assert len(contents(cache)) == 3


def test_a_map_outlives_its_file(make, cache):
    url, entry = make("a.bin", 600 * KB)
    mapped = np.memmap(cache.path(url, entry), np.uint8, "r")
    cache.path(*make("b.bin", 600 * KB))
    assert entry.sha256 not in contents(cache)
    assert hashlib.sha256(mapped).hexdigest() == entry.sha256


def test_a_file_used_just_now_stays_until_somebody_had_time_to_map_it(make, cache, monkeypatch):
    monkeypatch.setattr(caching, "GRACE_SECONDS", 0.3)
    cache.path(*make("a.bin", 600 * KB))
    start = time.monotonic()
    cache.path(*make("b.bin", 600 * KB))
    assert time.monotonic() - start > 0.2


def test_a_cut_copy_is_fetched_again(server, make, cache):
    url, entry = make("a.bin")
    os.truncate(cache.path(url, entry), 10)
    assert is_right(cache.path(url, entry), entry)
    assert len(server.downloads) == 2


def test_a_bound_below_one_file_is_refused(server, make, cache):
    url, entry = make("a.bin", 1001 * KB)
    with pytest.raises(ConfigError, match=r"a\.bin: 1,001,000 bytes, but the cache in .* may hold 1,000,000; give it"):
        cache.path(url, entry)
    assert server.downloads == []


def test_threads_share_one_download(server, make, cache):
    url, entry = make("a.bin", 900 * KB)
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda _: cache.path(url, entry), range(8)))
    assert paths == {cache.folder / entry.sha256}
    assert len(server.downloads) == 1


def test_the_bound_holds_while_many_fetch(make, cache):
    files = [make(f"{letter}.bin", 300 * KB) for letter in "abcdefgh"]
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(cache.path, *files[n * 5 % 8]) for n in range(40)]
        taken = []
        while not all(future.done() for future in running):
            taken.append(bytes_taken(cache))
    assert all(future.result().name in {entry.sha256 for _, entry in files} for future in running)
    assert 300 * KB <= max(taken) <= 1000 * KB


def bytes_taken(cache: FileCache) -> int:
    """Bytes of all files, while nothing is added."""
    if not (cache.folder / "room.lock").exists():
        return 0
    with (cache.folder / "room.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return sum((cache.folder / name).stat().st_size for name in contents(cache) if (cache.folder / name).exists())


FETCH = """
import sys
from pathlib import Path
from tokenmill_core.manifest import FileEntry
from tokenmill_shards.reading.cache import FileCache
folder, url, num_bytes, sha256 = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
try:
    print(FileCache(Path(folder), 10**9).path(url, FileEntry(path="a.bin", bytes=int(num_bytes), sha256=sha256)))
except OSError as error:
    print(error)
"""


def fetcher(cache: FileCache, url: str, entry: FileEntry, before: str = "") -> subprocess.Popen[str]:
    """A process about to fetch the file; it begins when a line is written to it."""
    command = [sys.executable, "-c", before + FETCH, str(cache.folder), url, str(entry.bytes), entry.sha256]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_processes_share_one_download(server, make, cache):
    url, entry = make("a.bin", 5000 * KB)
    processes = [fetcher(cache, url, entry) for _ in range(3)]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate()[0] for process in processes] == [f"{cache.folder / entry.sha256}\n"] * 3
    assert len(server.downloads) == 1


def test_a_killed_download_looks_like_nothing_and_is_taken_over(server, make, cache):
    url, entry = make("a.bin", 900 * KB)
    server.spoil.append(servers.go_silent)
    process = fetcher(cache, url, entry)
    process.stdin.write("\n")
    process.stdin.flush()
    while not server.downloads:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert contents(cache) == {f"{entry.sha256}.part"}
    cache.path(*make("b.bin", 600 * KB))  # the room it took is free
    assert f"{entry.sha256}.part" not in contents(cache)
    assert is_right(cache.path(url, entry), entry)


def test_where_the_disk_takes_no_more_the_error_says_so_and_nothing_is_left(make, cache):
    url, entry = make("a.bin", 900 * KB)
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    out, _ = fetcher(cache, url, entry, limited).communicate("\n")
    assert out.endswith(f"smaller size or another folder: '{cache.folder}'\n")
    assert contents(cache) == set()


def test_prefetching_needs_no_server_later(server, make, cache):
    url, entry = make("a.bin")
    cache.prefetch(url, entry)
    while entry.sha256 not in (contents(cache) if cache.folder.exists() else ()):
        time.sleep(0.01)
    server.down()
    assert is_right(cache.path(url, entry), entry)
    server.up()


def test_what_goes_wrong_in_the_background_is_told_by_the_one_who_needs_it(server, make, cache):
    url, entry = make("a.bin")
    server.spoil.append(servers.flip_a_byte)
    quick = FileCache(cache.folder, cache.max_bytes, waits=())
    quick.prefetch(url, entry)
    while len(server.downloads) < 1:
        time.sleep(0.01)
    assert is_right(quick.path(url, entry), entry)


def test_the_folder_and_the_size_are_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "set"))
    assert FileCache.open().folder == tmp_path / "set"
    assert FileCache.open().max_bytes == 64 * 10**9
    assert FileCache.open(str(tmp_path / "given"), "2GiB").folder == tmp_path / "given"
    assert FileCache.open(size="2GiB").max_bytes == 2 << 30
    monkeypatch.delenv("TOKENMILL_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert FileCache.open().folder == tmp_path / ".cache/tokenmill/shards"
    with pytest.raises(ConfigError, match="cache size 'much'"):
        FileCache.open(size="much")
