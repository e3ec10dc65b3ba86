"""The bytes of a file, decompressed as they stream by.

Magic bytes decide, the suffix is only a promise: people rename files. Several gzip members, zstd frames, bzip2 or xz
streams in a row are read as one stream, and one that ends early is an error, so that nothing partial passes as whole.
"""

import bz2
import logging
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import IO, Any

import zstandard

from tokenmill_core.documents import Account
from tokenmill_core.errors import InputError
from tokenmill_core.readers.formats import COMPRESSION_SUFFIXES, split_name
from tokenmill_core.storage import CHUNK_BYTES, open_read

BOM = b"\xef\xbb\xbf"
_FEED_BYTES = 8 << 10
"""Compressed bytes handed to a decompressor at a time: it gives all they expand to at once, so this bounds memory."""
_MAX_ZSTD_WINDOW = 1 << 31
"""The widest window that `zstd --long=31` writes, as public dumps do."""
_MAGIC = {
    "gzip": (b"\x1f\x8b",),
    # A zstd file may open with a skippable frame, whose magic has 16 values.
    "zstd": (b"\x28\xb5\x2f\xfd", *(bytes([value]) + b"\x2a\x4d\x18" for value in range(0x50, 0x60))),
    # A text may begin with "BZh"; the digits of pi that open a block, or of its root that end a stream, none has.
    "bzip2": tuple(b"BZh%d%s" % (n, m) for n in range(1, 10) for m in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")),
    "xz": (b"\xfd7zXZ\0",),
}
_DAMAGED = (EOFError, zlib.error, zstandard.ZstdError, lzma.LZMAError)

logger = logging.getLogger("tokenmill")


def read_chunks(url: str, account: Account, byte_range: tuple[int, int] | None = None) -> Iterator[bytes]:
    """The decompressed bytes of the file at `url`, in chunks of no fixed size; or those of a range, taken as they are.

    Raises:
        InputError: the file cannot be opened, its compressed stream is damaged or cut short.
    """
    try:
        with open_read(url) as file:
            if byte_range:
                yield from _range(file, *byte_range)
            else:
                yield from _noting_empty(_decoded(file, url, account), account)
    except (OSError, *_DAMAGED) as error:
        raise InputError(f"cannot read {url}: {error}; fetch the file again or leave it out") from error


def read_whole(url: str, account: Account) -> bytes:
    """All decompressed bytes of the file at `url`; errors as `read_chunks`."""
    return b"".join(read_chunks(url, account))


def detect_compression(head: bytes) -> str | None:
    """Which compression a file that begins with `head` has: `gzip`, `zstd`, `bzip2`, `xz` or none."""
    return next((kind for kind, magics in _MAGIC.items() if head.startswith(magics)), None)


def _range(file: IO[bytes], start: int, stop: int) -> Iterator[bytes]:
    file.seek(start)
    while start < stop:
        chunk = file.read(min(CHUNK_BYTES, stop - start))
        if not chunk:
            raise EOFError("it became shorter while it was read")
        yield chunk
        start += len(chunk)


def _decoded(file: IO[bytes], url: str, account: Account) -> Iterator[bytes]:
    head = file.read(CHUNK_BYTES)
    if not head:
        return
    promised = COMPRESSION_SUFFIXES.get(split_name(url)[2])
    found = detect_compression(head)
    if found is None and promised and any(magic.startswith(head) for magic in _MAGIC[promised]):
        raise EOFError("the compressed stream is cut short")
    if found != promised:
        account.note("misnamed_compression")
        logger.warning("%s is read as %s, whatever its name says", url, found or "not compressed")
    chunks = chain([head], iter(partial(file.read, CHUNK_BYTES), b""))
    yield from _decompress(chunks, _decompressor(found)) if found else chunks


def _decompressor(kind: str) -> Callable[[], Any]:
    match kind:
        case "gzip":
            return partial(zlib.decompressobj, wbits=zlib.MAX_WBITS | 16)
        case "zstd":
            return zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW).decompressobj
        case "bzip2":
            return bz2.BZ2Decompressor
        case _:
            return partial(lzma.LZMADecompressor, format=lzma.FORMAT_XZ)


def _expand(stream: Any, data: bytes) -> Iterator[bytes]:
    """What `stream` makes of `data`, in bounded steps where a few bytes may expand to hundreds of megabytes."""
    if not hasattr(stream, "needs_input"):
        yield stream.decompress(data)
        return
    yield stream.decompress(data, CHUNK_BYTES)
    while not (stream.eof or stream.needs_input):
        yield stream.decompress(b"", CHUNK_BYTES)


def _decompress(chunks: Iterator[bytes], new_stream: Callable[[], Any]) -> Iterator[bytes]:
    stream = None
    for chunk in chunks:
        for start in range(0, len(chunk), _FEED_BYTES):
            rest = chunk[start : start + _FEED_BYTES]
            # Tapes and block devices pad the end with zeros; between streams they mean nothing.
            while rest := rest if stream else rest.lstrip(b"\0"):
                stream = stream or new_stream()
                yield from filter(None, _expand(stream, rest))
                rest = stream.unused_data if stream.eof else b""
                stream = None if stream.eof else stream
    if stream:
        raise EOFError("the compressed stream is cut short")


def _noting_empty(chunks: Iterator[bytes], account: Account) -> Iterator[bytes]:
    empty = True
    for chunk in chunks:
        empty = False
        yield chunk
    if empty:
        account.note("empty_files")
