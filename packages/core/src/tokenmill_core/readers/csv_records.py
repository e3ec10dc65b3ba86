"""Records of a CSV file, out of lines of bytes. What cannot be parsed costs one line: reading goes on at the next."""

import csv
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from tokenmill_core.documents import Account
from tokenmill_core.readers.lines import without_marks

_MAX_RECORD_BYTES = 256 << 20
"""A longer record has a quote that nobody closed: it must not take the rest of the file, nor the memory for it."""


class Record(NamedTuple):
    """A record, or a line that is none."""

    row: int
    """The line it begins in, from 1."""
    lines: list[bytes]
    """As they stand in the file, without their ends."""
    values: list[str]
    problem: str | None
    """`invalid_csv` or `invalid_utf8`, or none."""

    @property
    def raw(self) -> bytes:
        """The record as it stands in the file, without its line end."""
        return b"\n".join(self.lines).removesuffix(b"\r")


def csv_records(lines: Iterator[bytes], delimiter: str, account: Account) -> Iterator[Record]:
    """The records of `lines`, which have no line ends; blank lines between records are noted and left out."""
    # A limit of the csv module, for the whole process; it must not be what decides how long a document can be.
    csv.field_size_limit(_MAX_RECORD_BYTES)
    feed = _Feed(lines, account)
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    row = 1
    while True:
        feed.begin_record()
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield Record(row, feed.keep_first_line(), [], "invalid_csv")
            reader = csv.reader(feed, delimiter=delimiter, strict=True)
            row += 1
            continue
        if values:
            yield Record(row, feed.taken, values, "invalid_utf8" if feed.invalid else None)
        else:
            account.note("blank_lines")
        row += len(feed.taken)


class _Feed:
    """What `csv.reader` draws lines from; remembers those of the record at hand, so that they can be drawn again."""

    def __init__(self, lines: Iterator[bytes], account: Account) -> None:
        self._lines = lines
        self._account = account
        self._again: deque[bytes] = deque()
        self.begin_record()

    def begin_record(self) -> None:
        self.taken: list[bytes] = []
        self._bytes = 0
        self.invalid = False
        """Whether the record holds bytes that are no UTF-8."""

    def keep_first_line(self) -> list[bytes]:
        """The first line of the record at hand; the others will be drawn again."""
        self._again.extend(self.taken[1:])  # they were drawn from the file, after all those drawn again
        return self.taken[:1]

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        # Asked for a further line, so within quotes: a record that failed was within them here too, and fails the same
        # whichever line it began in. Were it tried from each, reading would take time quadratic in the lines.
        if self.taken and self._again:
            raise csv.Error("the quotes are known not to end well")
        line = self._again.popleft() if self._again else next(self._lines)
        if not self.taken:
            line = without_marks(line, self._account)
        self.taken.append(line)
        self._bytes += len(line)
        if self._bytes > _MAX_RECORD_BYTES and len(self.taken) > 1:
            raise csv.Error("the record does not end")
        try:
            return line.decode("utf-8") + "\n"
        except UnicodeDecodeError:
            self.invalid = True
            return line.decode("utf-8", "replace") + "\n"
