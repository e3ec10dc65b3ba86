"""A byte stream cut into blocks of whole lines, so that many lines can be read at once.

A line ends at `\\n`. A block is as large as it takes to hold its longest line, and else of bounded size.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_BLOCK_BYTES = 1 << 20
_MARGIN = b"\n" * 32


@dataclass(frozen=True)
class LineBlock:
    """Whole lines, each of them ended, between margins of line ends that belong to none."""

    data: bytes

    @property
    def start(self) -> int:
        """Where in `data` the first line begins."""
        return len(_MARGIN)

    @property
    def stop(self) -> int:
        """Where in `data` the last line has ended."""
        return len(self.data) - len(_MARGIN)

    def lines(self) -> list[bytes]:
        """The lines without their ends."""
        return self.data[self.start : self.stop - 1].split(b"\n")


def line_blocks(chunks: Iterable[bytes]) -> Iterator[LineBlock]:
    """The lines of a stream in blocks, the first line in one of its own. A line that nothing ends gets its end."""
    held: list[bytes] = []
    num_bytes = target = 0
    for chunk in chunks:
        end = (chunk.rfind(b"\n") if target else chunk.find(b"\n")) + 1
        if end and num_bytes + end >= target:
            block = _block(*held, chunk[:end])
            # Before the block is worked on, so that a huge line is not held twice.
            held, num_bytes, target, chunk = [], 0, _BLOCK_BYTES, chunk[end:]
            yield block
        held.append(chunk)
        num_bytes += len(chunk)
    if num_bytes:
        yield _block(*held, b"" if held[-1].endswith(b"\n") else b"\n")


def _block(*parts: bytes) -> LineBlock:
    return LineBlock(b"".join((_MARGIN, *parts, _MARGIN)))
