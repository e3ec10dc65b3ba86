"""Files hashed on their way to the disk, and read back from it: what a manifest vouches for is what was meant.

bytes ─ sha256 ─▶ file ─ fsync, out of the page cache ─▶ read back ─ sha256 ─▶ the same, or `DamagedFileError`
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter

from tokenmill_core import storage
from tokenmill_core.manifest import FileEntry


class DamagedFileError(OSError):
    """A file that was just written reads differently: the disk, or the way to it, is broken."""


class _Stream(storage.HashingWriter):
    """Remembers why it took no more: torch's archive hides that behind an error of its own when it is closed."""

    problem: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.problem = error
            raise


class VouchedFiles(FileSystem):
    """torch's way to files, which notes the hash of each while it is written, and syncs it when it is closed."""

    def __init__(self) -> None:
        self.entries: list[FileEntry] = []

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        """A file to write; torch reads through another class."""
        assert mode == "wb", mode
        path = Path(path)
        writer = _Stream(path)
        try:
            with writer:
                yield writer
        except RuntimeError as error:
            raise writer.problem or error from None
        name = path.name.removesuffix(".tmp")  # `.metadata` gets its name a moment later
        self.entries.append(FileEntry(path=name, bytes=writer.bytes, sha256=writer.sha256))


class TensorWriter(FileSystemWriter):
    """torch's writer of sharded tensors through `VouchedFiles`: equal states give equal files.

    `per_thread_copy_ahead` is for tensors on a GPU. Ours are copies on the host, and the thread that writes them has no
    business with a GPU.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, sync_files=False, per_thread_copy_ahead=0)
        self.fs = self.files = VouchedFiles()

    def storage_meta(self) -> None:
        """Nothing: torch would note the folder's path and a random id."""


def read_back(folder: Path, entry: FileEntry) -> None:
    """The file `entry` in `folder` is on the disk as it was meant, or `DamagedFileError`.

    The kernel is asked to forget its own copy first, so that the bytes come from the device. What a device or a file
    server keeps in memory of its own is out of reach.
    """
    path = folder / entry.path
    _forget(path)
    num_bytes, sha256 = storage.hash_file(str(path))
    _forget(path)  # nobody reads it again soon, and memory is dear
    if (num_bytes, sha256) != (entry.bytes, entry.sha256):
        raise DamagedFileError(
            f"{path}: {entry.bytes} bytes with sha256 {entry.sha256[:12]}… were written, but {num_bytes} with "
            f"{sha256[:12]}… are read back: the disk cannot be trusted"
        )


def _forget(path: Path) -> None:
    if not hasattr(os, "posix_fadvise"):  # macOS
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
