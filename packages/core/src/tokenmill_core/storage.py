"""Files by fsspec URL: a plain path is a local file, `s3://…` and the like need their fsspec driver installed."""

import hashlib
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tokenmill_core.errors import InputError, VerificationError
from tokenmill_core.remote import asked, asked_on, driver_options, is_http

T = TypeVar("T")

CHUNK_BYTES = 1 << 20
_ESCAPED_BYTE = re.compile(rb"\\x([89a-f][0-9a-f])")


def filesystem(url: str) -> tuple[Any, str]:
    """The fsspec filesystem behind `url` and the path within it."""
    if "://" not in url:
        return LocalFileSystem(), os.path.abspath(url)
    try:
        options = {} if is_local(url) else driver_options(url)
        return fsspec.core.url_to_fs(url, **options)  # type: ignore[no-any-return]
    except (ImportError, ValueError) as error:
        raise InputError(
            f"cannot open {url!r}: {error}; install the fsspec driver for this protocol "
            "(for http and s3: pip install 'tokenmill-core[http,s3]')"
        ) from error


def is_local(url: str) -> bool:
    """Whether `url` names a place on this machine's own file system."""
    return "://" not in url or url.startswith(("file://", "local://"))


def local_path(url: str) -> Path:
    """The local path behind `url`."""
    return Path(filesystem(url)[1])


def join(base: str, relative: str) -> str:
    """`relative` below `base`, both with forward slashes."""
    return posixpath.normpath(posixpath.join(base, relative)) if "://" not in base else f"{base.rstrip('/')}/{relative}"


def parent(url: str) -> str:
    """The folder that holds `url`."""
    return os.path.dirname(os.path.abspath(url)) if "://" not in url else url.rsplit("/", 1)[0]


def relative_to(url: str, base: str) -> str:
    """`url` as seen from folder `base`, so that both can move together; `url` itself where either is remote.

    The path is `storable`.
    """
    if is_local(url) and is_local(base):
        url = os.path.relpath(local_path(url), local_path(base)).replace(os.sep, "/")
    return storable(url)


def from_relative(relative: str, base: str) -> str:
    """The inverse of `relative_to`.

    A path that climbs out of a remote host or bucket stays on it as `s3://bucket/../path`, where nothing lies.
    """
    if "://" in relative:
        return relative
    if os.path.isabs(relative):
        return as_stored(relative)
    if not is_local(base):
        protocol, _, place = base.partition("://")
        host, _, folder = place.partition("/")
        # An object store takes `..` for a name.
        return f"{protocol}://{host}/{posixpath.normpath(posixpath.join(folder, relative))}"
    return as_stored(os.path.normpath(os.path.join(local_path(base), relative)))


def storable(name: str) -> str:
    """`name` as valid UTF-8: file systems allow any bytes, manifests do not. A byte that is none becomes `\\xNN`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def as_stored(url: str) -> str:
    """The inverse of `storable`: where nothing lies at a local path as written, each `\\xNN` in it is a byte."""
    if "\\x" not in url or not is_local(url) or exists(url):
        return url
    return os.fsdecode(_ESCAPED_BYTE.sub(lambda escape: bytes([int(escape[1], 16)]), os.fsencode(url)))


def exists(url: str, waits: Sequence[float] | None = None) -> bool:
    """Whether something lies at `url`; `waits` as for `remote.asked`."""
    fs, path = filesystem(url)
    # Else a web server that is down would be a file that is missing.
    options = {"strict": True} if is_http(url) else {}
    return _asked(url, lambda: bool(fs.exists(path, **options)), waits)


def is_folder(url: str) -> bool:
    """Whether `url` is a folder; for a web server, a page of links to what is in it."""
    fs, path = filesystem(url)
    return _asked(url, lambda: bool(fs.isdir(path)))


def size(url: str) -> int | None:
    """Bytes of the file at `url`; none where its server does not say: it packs the file, or makes it as it sends it."""
    fs, path = filesystem(url)
    num_bytes = _asked(url, lambda: fs.size(path))
    return None if num_bytes is None else int(num_bytes)


def open_read(url: str) -> IO[bytes]:
    """The file at `url`, for reading bytes. What goes wrong once it is open is the driver's error."""
    fs, path = filesystem(url)
    return _asked(url, lambda: fs.open(path, "rb"))


def read_bytes(url: str) -> bytes:
    """All of the file at `url`."""
    return b"".join(read_chunks(url))


def read_chunks(url: str, waits: Sequence[float] | None = None) -> Iterator[bytes]:
    """The file at `url` from begin to end, bit by bit, from a web server by a single request.

    A remote one that breaks off is asked for again, after `waits`, and goes on where it was: see `remote.asked`.
    """
    chunks_from = partial(_chunks_from, url)
    return chunks_from(0) if is_local(url) else asked_on(url, chunks_from, waits)


def _chunks_from(url: str, offset: int) -> Iterator[bytes]:
    fs, path = filesystem(url)
    options = {"block_size": 0} if is_http(url) else {}
    with fs.open(path, "rb", **options) as file:
        if is_http(url):
            _pass_over(file, offset)
        else:
            file.seek(offset)
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _pass_over(file: IO[bytes], num_bytes: int) -> None:
    """Read so many bytes: not every web server can begin in the middle."""
    while num_bytes and (passed := file.read(min(num_bytes, CHUNK_BYTES))):
        num_bytes -= len(passed)


def _asked(url: str, ask: Callable[[], T], waits: Sequence[float] | None = None) -> T:
    """What `ask` gives; a local file is asked once."""
    return ask() if is_local(url) else asked(url, ask, waits)


def hash_file(url: str, on_bytes: Callable[[int], None] | None = None) -> tuple[int, str]:
    """(bytes, sha256) of the file at `url`; `on_bytes` is told how far it has come, chunk by chunk."""
    digest, total = hashlib.sha256(), 0
    for chunk in read_chunks(url):
        digest.update(chunk)
        total += len(chunk)
        if on_bytes:
            on_bytes(len(chunk))
    return total, digest.hexdigest()


def inside(folder: str, relative: str) -> str:
    """The URL of `relative` in `folder`, refused if it leads out of it, symbolic links followed."""
    url = join(folder, relative)
    if is_local(folder):
        root, target = local_path(folder).resolve(), local_path(url).resolve()
        if not target.is_relative_to(root):
            raise VerificationError(f"{relative!r} leads out of {root} (to {target}): refused; copy the file in")
    return url


def write_atomic(path: Path, content: bytes) -> None:
    """Write `content` to a local `path` so that it is there whole or not at all, even after a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        raise _naming_file(error, path) from None


def _naming_file(error: BaseException, path: Path) -> BaseException:
    """A full disk's error says nothing of the file; ours does."""
    if isinstance(error, OSError) and error.errno and not error.filename:
        return OSError(error.errno, error.strerror, str(path))
    return error


def copy_file(url: str, target: Path) -> tuple[int, str]:
    """Copy the file at `url` to a local `target`: (bytes, sha256) of what was copied."""
    with HashingWriter(target) as writer:
        for chunk in read_chunks(url):
            writer.write(chunk)
    return writer.bytes, writer.sha256


class AtomicWriter:
    """A local file that takes its name only when closed without an error.

    As a context manager: leaving it by an exception removes what was written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._temporary.open("wb")

    def write(self, data: bytes | memoryview) -> int:
        """Append `data`; the number of bytes written."""
        view = memoryview(data).cast("B")
        try:
            self._file.write(view)
        except OSError as error:
            raise _naming_file(error, self.path) from None
        self.bytes += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Bytes written so far."""
        return self.bytes

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        self._file.flush()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._file.closed

    def close(self) -> None:
        """Flush to disk and give the file its name. Closing twice does nothing."""
        if self._file.closed:
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._temporary.replace(self.path)
        except OSError as error:
            self.abandon()
            raise _naming_file(error, self.path) from None

    def abandon(self) -> None:
        """Close and remove what was written."""
        with suppress(OSError):  # closing writes what was buffered, which a full disk refuses again
            self._file.close()
        with suppress(OSError):
            self._temporary.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class HashingWriter(AtomicWriter):
    """The same, hashed while it is written: for files that a manifest vouches for."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._digest = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        """Append `data`; the number of bytes written."""
        self._digest.update(data)
        return super().write(data)

    @property
    def sha256(self) -> str:
        """Hex digest of what has been written so far."""
        return self._digest.hexdigest()
