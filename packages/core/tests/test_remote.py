"""Reading from a web server that does not always answer as it should."""

import gzip
import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import numpy as np
import pytest

from tokenmill_core import remote, storage
from tokenmill_core.errors import InputError, VerificationError
from tokenmill_core.manifest import FileEntry, TokensManifest
from tokenmill_core.manifest_io import LoadedManifest, check_hash, check_size, is_manifest
from tokenmill_core.remote import RemoteError, asked_on

CONTENT = np.random.default_rng(1).bytes(3 * storage.CHUNK_BYTES)
SILENCE_SECONDS = 0.3


class Server:
    """Answers any path with `content`. `faults` are the next answers instead, `answer` all others."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.faults: deque[Answer] = deque()
        self.answer: Answer = well
        self.requests: list[tuple[str, str | None]] = []
        """Each request's method and the encodings it takes."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, owner=self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/file.json"
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *args: Any, owner: Server) -> None:
        self.owner = owner
        super().__init__(*args)

    def handle(self) -> None:
        with suppress(ConnectionError):  # whoever knows enough hangs up
            super().handle()

    def do_GET(self) -> None:
        self.owner.requests.append((self.command, self.headers["Accept-Encoding"]))
        (self.owner.faults.popleft() if self.owner.faults else self.owner.answer)(self)

    do_HEAD = do_GET

    def send(self, headers: dict[str, str], body: bytes, status: int = 200) -> None:
        self.close_connection = True
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


Answer = Callable[[_Handler], None]


def well(handler: _Handler) -> None:
    content = handler.owner.content
    handler.send({"Content-Length": str(len(content)), "Content-Type": "application/json"}, content)


def packed(handler: _Handler) -> None:
    """Compressed, whatever was asked for."""
    body = gzip.compress(handler.owner.content)
    handler.send({"Content-Length": str(len(body)), "Content-Encoding": "gzip"}, body)


def chunked(handler: _Handler) -> None:
    """By parts of any size, the first one tiny: how long all is, only the end says."""
    content = handler.owner.content
    parts = [part for part in (content[:5], content[5:]) if part]
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    handler.send({"Transfer-Encoding": "chunked", "Content-Type": "application/json"}, body)


def says(status: int) -> Answer:
    return lambda handler: handler.send({"Content-Length": "0"}, b"", status)


def hang_up(handler: _Handler) -> None:
    """Not a word."""
    handler.close_connection = True


def go_silent(handler: _Handler) -> None:
    time.sleep(3 * SILENCE_SECONDS)
    handler.close_connection = True


class FurtherEachTime:
    """The first download breaks off after one of `parts`, the second after two, until one is whole."""

    def __init__(self, parts: int) -> None:
        self._parts, self._sent = parts, 0

    def __call__(self, handler: _Handler) -> None:
        content = handler.owner.content
        self._sent += handler.command == "GET"
        handler.send({"Content-Length": str(len(content))}, content[: len(content) * self._sent // self._parts])
        handler.wfile.flush()
        time.sleep(0.05)  # what has arrived when the connection breaks may be lost


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(remote, "WAITS", (0.0, 0.01, 0.01))
    monkeypatch.setattr(remote, "SILENCE_SECONDS", SILENCE_SECONDS)
    server = Server()
    yield server
    server.close()


def hashed(content: bytes) -> str:
    """For comparisons whose failure can be read."""
    return hashlib.sha256(content).hexdigest()


READS: dict[str, tuple[Callable[[str], Any], Any]] = {
    "size": (storage.size, len(CONTENT)),
    "exists": (storage.exists, True),
    "is_folder": (storage.is_folder, False),
    "read_bytes": (lambda url: hashed(storage.read_bytes(url)), hashed(CONTENT)),
    "hash_file": (storage.hash_file, (len(CONTENT), hashed(CONTENT))),
    "open_read": (lambda url: hashed(storage.open_read(url).read()), hashed(CONTENT)),
    "is_manifest": (is_manifest, False),
}
"""What is asked for, and what a good answer gives."""


FAULTS = {str(status): says(status) for status in (503, 500, 408, 425, 429)} | {
    "hang_up": hang_up,
    "go_silent": go_silent,
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_that_passes_is_not_noticed(server: Server, read: str, fault: Answer) -> None:
    ask, wanted = READS[read]
    server.faults.extend([fault, fault])  # a size is asked for in two ways before it is given up
    assert ask(server.url) == wanted
    assert not server.faults


@pytest.mark.parametrize("read", READS)
def test_a_fault_that_stays_is_told_once_the_waits_are_over(server: Server, read: str) -> None:
    server.answer = says(503)
    with pytest.raises(RemoteError, match=r"/file\.json: the server does not answer as it should .*503"):
        READS[read][0](server.url)
    assert len(server.requests) in (4, 8)


@pytest.mark.parametrize("read", READS)
def test_a_refusal_is_final(server: Server, read: str) -> None:
    server.answer = says(403)
    with pytest.raises(InputError, match=r"/file\.json: the server refuses it .*403"):
        READS[read][0](server.url)
    assert len(server.requests) <= 2


def test_an_address_that_is_none_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "WAITS", (60.0,))
    with pytest.raises(InputError, match=r"http://\[/x: .*check the address|cannot open 'http://\[/x'"):
        storage.read_bytes("http://[/x")


def test_what_breaks_off_goes_on_where_it_was(server: Server) -> None:
    server.answer = FurtherEachTime(parts=3)
    with pytest.raises(RemoteError):
        list(storage.read_chunks(server.url, waits=()))
    server.answer = FurtherEachTime(parts=3)
    seen: list[int] = []
    assert storage.hash_file(server.url, seen.append) == (len(CONTENT), hashed(CONTENT))
    assert sum(seen) == len(CONTENT)


def test_a_file_that_gets_on_may_break_off_any_number_of_times() -> None:
    def chunks_from(offset: int) -> Iterator[bytes]:
        if offset < 900:
            yield CONTENT[offset : offset + 100]
            raise ConnectionResetError

    assert b"".join(asked_on("http://x/y", chunks_from, waits=(0.0,))) == CONTENT[:900]


def test_a_missing_file_is_missing_at_once(server: Server) -> None:
    server.answer = says(404)
    assert not storage.exists(server.url)
    with pytest.raises(InputError, match="there is no such file on the server"):
        storage.read_bytes(server.url)
    assert len(server.requests) <= 3


def test_files_are_asked_for_as_they_are(server: Server) -> None:
    for read, _ in READS.values():
        read(server.url)
    assert {encoding for _, encoding in server.requests} == {"identity"}


def listed(server: Server, num_bytes: int) -> tuple[LoadedManifest[TokensManifest], FileEntry]:
    """A manifest beside the file, and what it says of it."""
    loaded = LoadedManifest(storage.parent(server.url) + "/manifest.json", TokensManifest.model_construct())
    return loaded, FileEntry(path="file.json", bytes=num_bytes, sha256=hashed(CONTENT))


@pytest.mark.parametrize("answer", [packed, chunked])
def test_where_no_size_is_told_the_hash_says_whether_the_file_is_right(server: Server, answer: Answer) -> None:
    server.answer = answer
    assert storage.size(server.url) is None
    assert hashed(storage.read_bytes(server.url)) == hashed(CONTENT)
    loaded, entry = listed(server, len(CONTENT))
    check_size(loaded, entry)
    check_hash(loaded, entry)
    server.content = CONTENT[:-1]
    check_size(loaded, entry)
    with pytest.raises(VerificationError, match=r"file\.json: sha256 is"):
        check_hash(loaded, entry)


def test_a_wrong_size_is_there_and_not_on_a_disk(server: Server) -> None:
    loaded, entry = listed(server, 5)
    with pytest.raises(VerificationError, match=rf"file\.json: {len(CONTENT)} bytes there, 5 in its manifest"):
        check_size(loaded, entry)


def test_a_manifest_that_comes_by_a_few_bytes_is_one(server: Server) -> None:
    server.answer = chunked
    server.content = json.dumps({"schema_version": 1, "kind": "mixture", "digest": ""}).encode()
    assert is_manifest(server.url)


def test_local_files_are_asked_for_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "WAITS", (60.0,))
    for read in (storage.size, storage.read_bytes, storage.open_read, storage.hash_file):
        with pytest.raises(FileNotFoundError):
            read(str(tmp_path / "none"))
