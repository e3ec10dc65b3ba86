"""Cutting an uncompressed file of lines into byte ranges, so that one huge file makes many tasks."""

from dataclasses import dataclass

from tokenmill_core.errors import InputError
from tokenmill_core.readers.compression import detect_compression
from tokenmill_core.readers.formats import split_name
from tokenmill_core.storage import open_read

_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True)
class LineRange:
    """Whole lines of a file: bytes `start` to `stop`, the first of them row `first_row`, counted from 1."""

    start: int
    stop: int
    first_row: int


def is_compressed(url: str) -> bool:
    """Whether the file at `url` is compressed, or its name says so: it has to be read from its beginning.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        with open_read(url) as file:
            return bool(split_name(url)[2] or detect_compression(file.read(_CHUNK_BYTES)))
    except OSError as error:
        raise _unreadable(url, error) from error


def line_ranges(url: str, target_bytes: int) -> list[LineRange]:
    """Ranges that cover the file at `url`, each as many lines as it takes to reach `target_bytes`.

    Reads the file once, counting line ends.

    Raises:
        InputError: the file cannot be read.
    """
    ranges: list[LineRange] = []
    start = position = 0
    row = first_row = 1
    try:
        with open_read(url) as file:
            while chunk := file.read(_CHUNK_BYTES):
                begin = 0
                while end := chunk.find(b"\n", max(begin, start + target_bytes - 1 - position)) + 1:
                    row += chunk.count(b"\n", begin, end)
                    ranges.append(LineRange(start, position + end, first_row))
                    start, first_row, begin = position + end, row, end
                row += chunk.count(b"\n", begin)
                position += len(chunk)
    except OSError as error:
        raise _unreadable(url, error) from error
    if position > start:
        ranges.append(LineRange(start, position, first_row))
    return ranges


def _unreadable(url: str, error: OSError) -> InputError:
    return InputError(f"cannot read {url}: {error}; fetch the file again or leave it out")
