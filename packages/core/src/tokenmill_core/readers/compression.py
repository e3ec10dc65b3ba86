"""The bytes of a file, decompressed as they stream by.

Magic bytes decide, the suffix is only a promise: people rename files. Several gzip members or zstd frames in a row are
read as one stream, and a stream that ends early is an error, so that nothing partial passes as the whole.
"""

import logging
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
}

logger = logging.getLogger("tokenmill")


def read_chunks(url: str, account: Account) -> Iterator[bytes]:
    """The decompressed bytes of the file at `url`, in chunks of no fixed size.

    Raises:
        InputError: the file cannot be opened, its compressed stream is damaged or cut short.
    """
    try:
        with open_read(url) as file:
            yield from _noting_empty(_decoded(file, url, account), account)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise InputError(f"cannot read {url}: {error}; fetch the file again or leave it out") from error


def read_whole(url: str, account: Account) -> bytes:
    """All decompressed bytes of the file at `url`; errors as `read_chunks`."""
    return b"".join(read_chunks(url, account))


def detect_compression(head: bytes) -> str | None:
    """Which compression a file that begins with `head` has: `gzip`, `zstd` or none."""
    return next((kind for kind, magics in _MAGIC.items() if head.startswith(magics)), None)


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
    if kind == "gzip":
        return partial(zlib.decompressobj, wbits=zlib.MAX_WBITS | 16)
    return zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW).decompressobj


def _decompress(chunks: Iterator[bytes], new_stream: Callable[[], Any]) -> Iterator[bytes]:
    stream = None
    for chunk in chunks:
        for start in range(0, len(chunk), _FEED_BYTES):
            rest = chunk[start : start + _FEED_BYTES]
            # Tapes and block devices pad the end with zeros; between streams they mean nothing.
            while rest := rest if stream else rest.lstrip(b"\0"):
                stream = stream or new_stream()
                if out := stream.decompress(rest):
                    yield out
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
