"""Remote files kept on a local disk: fetched once, checked while they arrive, bounded in bytes.

    <folder>/<sha256>        a whole file, named by its content; its modification time says when it was last used
    <folder>/<sha256>.part   a file on its way: whoever holds its lock fetches it, others wait for that lock
    <folder>/room.lock       held while files are counted, removed, or given their name

Threads and processes may share a folder, the ranks of a node for example. Locks die with the process that holds them,
so a killed download leaves nothing but a `.part`, which the next one who wants the file, or the room, takes over.
"""

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple, Self

from tokenmill_core import storage
from tokenmill_core.errors import ConfigError, TokenmillError, VerificationError
from tokenmill_core.manifest import FileEntry
from tokenmill_core.remote import WAITS, RemoteError, tried
from tokenmill_core.sizes import parse_bytes

DEFAULT_SIZE = "64GB"
FOLDER_VARIABLE = "TOKENMILL_CACHE"
DEFAULT_FOLDER = Path("~/.cache/tokenmill/shards")
GRACE_SECONDS = 0.5
"""A file used so recently stays: somebody may be about to map it. A map outlives the file's name."""
POLL_SECONDS = 0.05
_OURS = re.compile(r"[0-9a-f]{64}(\.part)?")


class FileCache:
    """Local copies of remote files, at most `max_bytes` of them in `folder`. Safe for threads and processes to share.

    The files used least recently make room for others. One that is still mapped keeps its place on the disk until it is
    unmapped. `waits`: seconds between one try to fetch a file and the next.
    """

    def __init__(self, folder: Path, max_bytes: int, *, waits: Sequence[float] = WAITS) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self._waits = tuple(waits)

    @classmethod
    def open(cls, folder: str | None = None, size: str = DEFAULT_SIZE) -> Self:
        """The cache in `folder`, or $TOKENMILL_CACHE, or `~/.cache/tokenmill/shards`; `size` as in `64GB`."""
        chosen = folder or os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER
        return cls(Path(chosen).expanduser(), parse_bytes(size, "cache size"))

    def path(self, url: str, entry: FileEntry) -> Path:
        """The local copy of the file at `url`, fetched if need be: open or map it at once, it may go when others come.

        Errors: `ConfigError` where the cache is too small for it; `VerificationError` where the server has something
        other than what `entry` says; `InputError` where it is not there, or the server does not answer for a minute.
        """
        path, part = self.folder / entry.sha256, self.folder / f"{entry.sha256}.part"
        while not _use(path, entry):
            self._check_size(url, entry)
            with _naming(self.folder), _claimed(part) as file, ExitStack() as undo:
                if file is None:
                    continue
                undo.callback(part.unlink, missing_ok=True)
                if not _use(path, entry):  # another may have fetched it while we waited
                    self._fetch(url, entry, file)
                    with self._counting():  # whoever lists the folder meanwhile may see neither name
                        part.rename(path)
                    undo.pop_all()
                return path
        return path

    def prefetch(self, url: str, entry: FileEntry) -> None:
        """Begin to fetch the file in the background. What goes wrong is left to `path`, which tries again."""

        def fetch() -> None:
            with suppress(TokenmillError, OSError):
                self.path(url, entry)

        Thread(target=fetch, name=f"prefetch {url}", daemon=True).start()

    def _check_size(self, url: str, entry: FileEntry) -> None:
        if entry.bytes > self.max_bytes:
            raise ConfigError(
                f"{url}: {entry.bytes:,} bytes, but the cache in {self.folder} may hold {self.max_bytes:,}; "
                "give it a larger size"
            )
        self.folder.mkdir(parents=True, exist_ok=True)

    def _fetch(self, url: str, entry: FileEntry, file: int) -> None:
        """Fill `file`, trying again while that may help."""
        self._make_room(file, entry.bytes)
        tried(lambda: self._receive(url, entry, file), self._waits, (RemoteError, VerificationError))

    def _receive(self, url: str, entry: FileEntry, file: int) -> None:
        """Write what the server sends into `file` and on to the disk; refused if it is not what `entry` says."""
        digest, have = hashlib.sha256(), 0
        for chunk in storage.read_chunks(url, waits=()):
            if have + len(chunk) > entry.bytes:
                raise _differs(url, entry, f"more than {entry.bytes:,} bytes")
            digest.update(chunk)
            _write(file, chunk, have)
            have += len(chunk)
        if have != entry.bytes or digest.hexdigest() != entry.sha256:
            raise _differs(url, entry, f"{have:,} bytes with sha256 {digest.hexdigest()[:12]}…")
        os.fsync(file)  # a name that outlives a power cut must not stand for less than it says

    def _make_room(self, file: int, num_bytes: int) -> None:
        """Give the empty `file` its full size, which keeps the room for it, once no more than the bound is taken."""
        os.truncate(file, 0)
        while not self._reserve(file, num_bytes):
            time.sleep(POLL_SECONDS)

    def _reserve(self, file: int, num_bytes: int) -> bool:
        with self._counting():
            stored = sorted(filter(None, map(_stored, os.scandir(self.folder))))
            used = sum(item.bytes for item in stored)
            for item in stored:
                if used + num_bytes <= self.max_bytes:
                    break
                used -= item.bytes if _remove(item) else 0
            if used + num_bytes > self.max_bytes:
                return False
            os.truncate(file, num_bytes)
            return True

    def _counting(self) -> AbstractContextManager[int | None]:
        return _claimed(self.folder / "room.lock")


class _Stored(NamedTuple):
    """A file in the cache; they sort as they make room: abandoned ones, then those used least recently."""

    whole: bool
    used_ns: int
    path: str
    bytes: int


def _stored(entry: os.DirEntry[str]) -> _Stored | None:
    """None where it is not ours, or has gone."""
    if not _OURS.fullmatch(entry.name):
        return None
    try:
        status = entry.stat()
    except FileNotFoundError:
        return None
    return _Stored(not entry.name.endswith(".part"), status.st_mtime_ns, entry.path, status.st_size)


def _remove(item: _Stored) -> bool:
    """Remove a whole file, unless it was used just now, or one that a killed process was fetching."""
    if not item.whole:
        return _remove_abandoned(item.path)
    if 0 <= time.time() - item.used_ns / 1e9 < GRACE_SECONDS:
        return False
    with suppress(FileNotFoundError):
        os.unlink(item.path)
    return True


def _remove_abandoned(path: str) -> bool:
    with suppress(FileNotFoundError), open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if _is_at(file.fileno(), path):
            os.unlink(path)
    return True


def _use(path: Path, entry: FileEntry) -> bool:
    """Whether the whole file is there; if so, it has just been used."""
    try:
        if path.stat().st_size != entry.bytes:
            return False
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def _claimed(path: Path) -> Iterator[int | None]:
    """The file at `path`, made if need be, open and locked: its descriptor.

    None where it went, or took another name, while we waited for the lock.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file if _is_at(file, path) else None
    finally:
        # Not left to closing: a process forked meanwhile holds the file open, and would hold the lock.
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


def _is_at(file: int, path: str | Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file), os.stat(path))
    return False


def _write(file: int, chunk: bytes, offset: int) -> None:
    view = memoryview(chunk)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """A full disk's error says nothing of the file."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        remedy = "make room there, or give the cache a smaller size or another folder"
        raise OSError(error.errno, f"{error.strerror}; {remedy}", str(folder)) from error


def _differs(url: str, entry: FileEntry, have: str) -> VerificationError:
    return VerificationError(
        f"{url}: the server sends {have}, its manifest needs {entry.bytes:,} with {entry.sha256[:12]}…; "
        "restore the file there, or build the dataset again"
    )
